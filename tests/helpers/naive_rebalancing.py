"""The remedies for unbalanced classes as plain Python loops, from their papers' formulas.

A step is a `Step` of lists. A remedy takes the steps of a run, in order, and gives FixMatch's total loss for each.
"""

import math
from dataclasses import dataclass

from naive import Rows, cross_entropy, mean_of, softmax

THRESHOLD = 0.95


@dataclass
class Step:
    """One batch: labels, logits and features of each view, the teacher's features, and which images the rows are."""

    labels: list[int]
    labeled: Rows
    weak: Rows
    strong: Rows
    labeled_features: Rows
    weak_features: Rows
    strong_features: Rows
    teacher_features: Rows
    rows: list[int]
    draws: list[float]  # uniform in [0, 1)


def plus(row: list[float], shift: list[float], sign: float = 1.0) -> list[float]:
    return [a + sign * b for a, b in zip(row, shift, strict=True)]


def share_of_labels(counts: list[int]) -> list[float]:
    return [n / sum(counts) for n in counts]


def total_loss(labels: list[int], labeled: Rows, targets: Rows, strong: Rows) -> float:
    """FixMatch's, where the probabilities `targets` give the pseudo-labels."""
    loss = sum(cross_entropy(row, y) for row, y in zip(labeled, labels, strict=True)) / len(labels)
    for q, row in zip(targets, strong, strict=True):
        if max(q) >= THRESHOLD:
            loss += cross_entropy(row, q.index(max(q))) / len(strong)
    return loss


def aligned(rows: Rows, wanted: list[float], seen: list[float]) -> Rows:
    targets = []
    for row in rows:
        ratio = [q * w / s for q, w, s in zip(softmax(row), wanted, seen, strict=True)]
        targets.append([value / sum(ratio) for value in ratio])
    return targets


def alignment(steps: list[Step], counts: list[int]) -> list[float]:
    pi, losses = share_of_labels(counts), []
    means = [[1 / len(pi)] * len(pi)] * 128
    for step in steps:
        targets = aligned(step.weak, pi, mean_of(means[-128:]))
        losses.append(total_loss(step.labels, step.labeled, targets, step.strong))
        means.append(mean_of([softmax(row) for row in step.weak]))
    return losses


def logit_adjustment(steps: list[Step], counts: list[int], tau: float) -> list[float]:
    shift = [tau * math.log(share) for share in share_of_labels(counts)]
    return [
        total_loss(
            step.labels,
            [plus(row, shift) for row in step.labeled],
            [softmax(row) for row in step.weak],
            step.strong,
        )
        for step in steps
    ]


def debiaspl(steps: list[Step], classes: int, strength: float, decay: float) -> list[float]:
    average, losses = [1 / classes] * classes, []
    for step in steps:
        before = [strength * math.log(p) for p in average]
        targets = [softmax(plus(row, before, -1.0)) for row in step.weak]
        mean = mean_of([softmax(row) for row in step.weak])
        average = [decay * old + (1 - decay) * new for old, new in zip(average, mean, strict=True)]
        after = [strength * math.log(p) for p in average]
        strong = [plus(row, after) for row in step.strong]
        losses.append(total_loss(step.labels, step.labeled, targets, strong))
    return losses


def linear(rows: Rows, weight: Rows, bias: list[float]) -> Rows:
    return [
        [sum(w * x for w, x in zip(weight[k], row, strict=True)) + bias[k] for k in range(len(bias))] for row in rows
    ]


def abc(steps: list[Step], counts: list[int], weight: Rows, bias: list[float], length: int) -> list[float]:
    losses = []
    for number, step in enumerate(steps):
        targets = [softmax(row) for row in linear(step.weak_features, weight, bias)]
        own = linear(step.labeled_features, weight, bias), linear(step.strong_features, weight, bias)
        loss = total_loss(step.labels, own[0], targets, own[1])
        draws = iter(step.draws)
        for row, label in zip(step.labeled, step.labels, strict=True):
            if next(draws) < min(counts) / counts[label]:
                loss += cross_entropy(row, label) / len(step.labels)
        for weak, strong in zip(step.weak, step.strong, strict=True):
            q = softmax(weak)
            kept = min(counts) / counts[q.index(max(q))]
            drawn = next(draws) < 1 - number / length * (1 - kept)
            if drawn and max(q) >= THRESHOLD:
                loss += sum(p * cross_entropy(strong, k) for k, p in enumerate(q)) / len(step.strong)
        losses.append(loss)
    return losses


def darp_without_noise(p: Rows, wanted: list[float]) -> Rows:
    n, classes = len(p), len(wanted)
    kept = [[0.0] * classes for _ in range(n)]
    for k in range(classes):
        best = sorted(range(n), key=lambda m: -p[m][k])[: int(2 * wanted[k])]
        scale = (wanted[k] + 1e-6) / (sum(p[m][k] for m in best) + 1e-6)
        for m in best:
            kept[m][k] = p[m][k] * scale
    return [[(v + 1e-6) / sum(u + 1e-6 for u in row) for v in row] for row in kept]


def darp_refined(p: Rows, wanted: list[float], alternations: int = 10) -> Rows:
    """Row and column multipliers in turn; a column's by bisection."""
    n, classes = len(p), len(wanted)
    entropy = [-sum(v * math.log(v + 1e-6) for v in row) for row in p]
    nu = [0.0] * classes
    for _ in range(alternations):
        factor = [1 / sum(p[m][k] * math.exp(-nu[k] * entropy[m]) for k in range(classes)) for m in range(n)]
        for k in range(classes):
            low, high = -1e6, 1e6
            for _ in range(200):
                middle = (low + high) / 2
                total = sum(p[m][k] * factor[m] * math.exp(min(300.0, -middle * entropy[m])) for m in range(n))
                low, high = (middle, high) if total > wanted[k] else (low, middle)
            nu[k] = (low + high) / 2
    x = [[p[m][k] * math.exp(-nu[k] * entropy[m]) for k in range(classes)] for m in range(n)]
    return [[v / sum(row) for v in row] for row in x]


def darp(steps: list[Step], counts: list[int], pool: int, length: int) -> list[float]:
    wanted = [pool * share for share in share_of_labels(counts)]
    predictions = [[1 / len(counts)] * len(counts) for _ in range(pool)]
    refined, losses = predictions, []
    for number, step in enumerate(steps):
        for row, place in zip(step.weak, step.rows, strict=True):
            predictions[place] = softmax(row)
        targets = [softmax(row) for row in step.weak]
        if number >= 0.4 * length:
            if (number - int(0.4 * length)) % 10 == 0:
                refined = darp_refined(darp_without_noise(predictions, wanted), wanted)
            targets = [refined[place] for place in step.rows]
        losses.append(total_loss(step.labels, step.labeled, targets, step.strong))
    return losses


def crest(steps: list[Step], counts: list[int], alpha: float, pool: int, length: int) -> tuple[list[float], list[int]]:
    """The losses, and the labels that the images of the pool have at the end: -1 if none."""
    pi, losses, generations = share_of_labels(counts), [], 6
    ranked = sorted(range(len(counts)), key=lambda k: -counts[k])
    rate = {k: (counts[ranked[-1 - rank]] / max(counts)) ** alpha for rank, k in enumerate(ranked)}
    means = [[1 / len(pi)] * len(pi)] * 128
    predictions: dict[int, list[float]] = {}
    given, generation = [-1] * pool, 0
    for number, step in enumerate(steps):
        if number >= (generation + 1) * length / generations:
            generation += 1
            given = [-1] * pool
            for k in range(len(pi)):
                of_class = [place for place, q in sorted(predictions.items()) if q.index(max(q)) == k]
                of_class.sort(key=lambda place: -max(predictions[place]))
                for place in of_class[: int(rate[k] * len(of_class))]:
                    given[place] = k
        for row, place in zip(step.weak, step.rows, strict=True):
            predictions[place] = softmax(row)
        exponent = 1.0 - 0.5 * generation / (generations - 1)
        wanted = [share**exponent / sum(other**exponent for other in pi) for share in pi]
        targets = aligned(step.weak, wanted, mean_of(means[-128:]))
        losses.append(total_loss(step.labels, step.labeled, targets, step.strong))
        means.append(mean_of([softmax(row) for row in step.weak]))
    return losses, given


def cosine(a: list[float], b: list[float]) -> float:
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def daso(steps: list[Step], classes: int, temperature: float, length: int, size: int) -> list[float]:
    queues: list[Rows] = [[] for _ in range(classes)]
    counts, used, losses = [0] * classes, [1] * classes, []
    for number, step in enumerate(steps):
        for features, label in zip(step.teacher_features, step.labels, strict=True):
            queues[label] = [*queues[label], features][-size:]
        targets, extra = [softmax(row) for row in step.weak], 0.0
        if number >= 0.02 * length:
            prototypes = [mean_of(queue) for queue in queues]
            for i in range(len(targets)):
                similar = softmax([cosine(step.weak_features[i], c) / 0.05 for c in prototypes])
                strong = [cosine(step.strong_features[i], c) / 0.05 for c in prototypes]
                extra += sum(q * cross_entropy(strong, k) for k, q in enumerate(similar)) / len(targets)
                v = (used[targets[i].index(max(targets[i]))] / max(used)) ** (1 / temperature)
                targets[i] = [(1 - v) * a + v * b for a, b in zip(targets[i], similar, strict=True)]
        losses.append(total_loss(step.labels, step.labeled, targets, step.strong) + extra)
        for q in targets:
            counts[q.index(max(q))] += 1
        if (number + 1) % 100 == 0:
            counts, used = [0] * classes, counts
    return losses
