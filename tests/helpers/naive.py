"""The paper's formulas as plain Python loops: slow, obvious, and independent of the code they judge."""

import math

Rows = list[list[float]]


def normalized(rows: Rows) -> Rows:
    lengths = [math.sqrt(sum(v * v for v in row)) for row in rows]
    return [[v / length if length else 0.0 for v in row] for row, length in zip(rows, lengths, strict=True)]


def distance(a: list[float], b: list[float], squared: bool) -> float:
    total = sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    return total if squared else math.sqrt(total)


def f(gap: float, soft_margin: bool) -> float:
    return math.log1p(math.exp(-abs(gap))) + max(gap, 0.0) if soft_margin else max(gap, 0.0)


def batch_all(c: Rows, y: list[int], m: float, soft: bool, l2: bool, squared: bool) -> float:
    """Eq. (4)."""
    c = normalized(c) if l2 else c
    terms = []
    for a in range(len(c)):
        for p in range(len(c)):
            for n in range(len(c)):
                if a != p and y[a] == y[p] and y[a] != y[n]:
                    gap = m + distance(c[a], c[p], squared) - distance(c[a], c[n], squared)
                    terms.append(f(gap, soft))
    return sum(terms) / len(terms) if terms else 0.0


def batch_hard(
    c: Rows, y: list[int], m: float, soft: bool, l2: bool, squared: bool, true_triplets: bool = False
) -> float:
    """Eq. (5): p is any row of the anchor's class, the anchor among them."""
    c = normalized(c) if l2 else c
    total = 0.0
    for a in range(len(c)):
        same = [p for p in range(len(c)) if y[p] == y[a] and not (true_triplets and p == a)]
        positives = [distance(c[a], c[p], squared) for p in same]
        negatives = [distance(c[a], c[n], squared) for n in range(len(c)) if y[n] != y[a]]
        if positives and negatives:
            total += f(m + max(positives) - min(negatives), soft)
    return total / len(c) if c else 0.0


def batch_mean(c: Rows, y: list[int], m: float, soft: bool, l2: bool, squared: bool, true_mean: bool) -> float:
    """Eq. (6)."""
    c = normalized(c) if l2 else c
    total = 0.0
    for a in range(len(c)):
        positives = [distance(c[a], c[p], squared) for p in range(len(c)) if p != a and y[p] == y[a]]
        negatives = [distance(c[a], c[n], squared) for n in range(len(c)) if y[n] != y[a]]
        pull = sum(positives) / (max(len(positives), 1) if true_mean else len(c))
        push = sum(negatives) / (max(len(negatives), 1) if true_mean else len(c))
        total += f(m + pull - push, soft)
    return total / len(c) if c else 0.0


def contrastive(c: Rows, y: list[int], temperature: float, l2: bool, similarity: str = "cosine") -> float:
    """Eq. (7), with sim(u, v) = u·v / (‖u‖ ‖v‖) or u·v."""
    c = normalized(c) if l2 else c

    def s(i: int, j: int) -> float:
        product = sum(u * v for u, v in zip(c[i], c[j], strict=True))
        if similarity == "cosine":
            product /= math.hypot(*c[i]) * math.hypot(*c[j]) or math.inf
        return product / temperature

    terms = []
    for a in range(len(c)):
        for p in range(len(c)):
            if a != p and y[a] == y[p]:
                negatives = [s(a, n) for n in range(len(c)) if y[n] != y[a]]
                top = max([s(a, p), *negatives])
                below = math.exp(s(a, p) - top) + sum(math.exp(v - top) for v in negatives)
                terms.append(-(s(a, p) - top - math.log(below)))
    return sum(terms) / len(terms) if terms else 0.0


def softmax(row: list[float]) -> list[float]:
    top = max(row)
    weights = [math.exp(v - top) for v in row]
    return [w / sum(weights) for w in weights]


def cross_entropy(row: list[float], label: int) -> float:
    top = max(row)
    return top + math.log(sum(math.exp(v - top) for v in row)) - row[label]


def soft_cross_entropy(row: list[float], target: list[float]) -> float:
    return sum(t * cross_entropy(row, label) for label, t in enumerate(target) if t > 0)


def squared_error(row: list[float], target: list[float]) -> float:
    """Mean over classes."""
    return sum((p - t) ** 2 for p, t in zip(softmax(row), target, strict=True)) / len(row)


def one_hot(label: int, classes: int) -> list[float]:
    return [float(c == label) for c in range(classes)]


def sharpened(p: list[float], temperature: float) -> list[float]:
    powers = [v ** (1 / temperature) for v in p]
    return [v / sum(powers) for v in powers]


def mean_of(rows: Rows) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def mixed(rows: Rows, shares: list[float], partners: list[int]) -> Rows:
    return [
        [share * a + (1 - share) * b for a, b in zip(row, rows[partner], strict=True)]
        for row, share, partner in zip(rows, shares, partners, strict=True)
    ]
