"""The losses of the sibling methods as plain Python loops, from their papers' formulas.

A batch is a list of rows of logits, laid out as `fixed_losses` of the contract does: 4 labeled rows (0…3) with the
labels 0, 1, 1, 2, 6 weak rows (4…9), 6 strong rows (10…15), 6 rows of a second weak view (16…21). Methods with a state
take the batches of several steps and give a loss for each.
"""

import math

from naive import Rows, cross_entropy, softmax

LABELS = [0, 1, 1, 2]
CLASSES = range(3)
UNLABELED = range(6)
RAMP = 0.5  # step 2 of 10 is half of the first 40%
DECAY = 0.9  # of statistics in 10 steps: 1 - 0.001 · 131,072 / 10 is below the least decay, 0.9


def supervised(rows: Rows) -> float:
    return sum(cross_entropy(rows[i], y) for i, y in enumerate(LABELS)) / 4


def weak(rows: Rows) -> Rows:
    return [softmax(row) for row in rows[4:10]]


def argmax(row: list[float]) -> int:
    return row.index(max(row))


def log_softmax(row: list[float]) -> list[float]:
    return [-cross_entropy(row, c) for c in range(len(row))]


def kl(targets: list[float], logits: list[float]) -> float:
    terms = zip(targets, log_softmax(logits), strict=True)
    return sum(t * (math.log(t) - log_q) for t, log_q in terms if t > 0)


def entropy(logits: list[float]) -> float:
    return -sum(p * log_p for p, log_p in zip(softmax(logits), log_softmax(logits), strict=True))


def sharpen(p: list[float], temperature: float) -> list[float]:
    power = [v ** (1 / temperature) for v in p]
    return [v / sum(power) for v in power]


def pseudo_label(rows: Rows, threshold: float = 0.95, unlabeled_weight: float = 1.0, ramp: float = RAMP) -> float:
    total = 0.0
    for i in UNLABELED:
        p = softmax(rows[4 + i])
        if max(p) >= threshold:
            total += cross_entropy(rows[4 + i], argmax(p)) / 6
    return supervised(rows) + unlabeled_weight * ramp * total


def squared_difference(first: Rows, second: Rows) -> float:
    total = 0.0
    for i in UNLABELED:
        for a, b in zip(softmax(first[i]), softmax(second[i]), strict=True):
            total += (a - b) ** 2 / (6 * 3)
    return total


def pi_model(rows: Rows, unlabeled_weight: float = 10.0, ramp: float = RAMP) -> float:
    return supervised(rows) + unlabeled_weight * ramp * squared_difference(rows[4:10], rows[16:22])


def mean_teacher(rows: Rows, teacher: Rows, unlabeled_weight: float = 50.0, ramp: float = RAMP) -> float:
    return supervised(rows) + unlabeled_weight * ramp * squared_difference(rows[4:10], teacher[16:22])


def vat(
    rows: Rows,
    slope: Rows,
    draws: Rows,
    epsilon: float = 6.0,
    xi: float = 1e-3,
    power_iterations: int = 1,
    adversarial_weight: float = 0.3,
    entropy_weight: float = 0.06,
    ramp: float = RAMP,
) -> float:
    """The network is linear in the perturbation: logits(u + r) = logits(u) + slope · r."""

    def moved(logits: list[float], r: list[float]) -> list[float]:
        return [v + sum(s * x for s, x in zip(slope[c], r, strict=True)) for c, v in enumerate(logits)]

    def unit(r: list[float]) -> list[float]:
        length = math.hypot(*r)
        return [x / length if length else 0.0 for x in r]

    divergence = unsureness = 0.0
    for i in UNLABELED:
        logits = rows[4 + i]
        p, d = softmax(logits), unit(draws[i])
        for _ in range(power_iterations):
            # As the paper says it: the gradient of KL(p ‖ q) at ξd; dKL/dlogits = q - p.
            q = softmax(moved(logits, [xi * x for x in d]))
            d = unit([sum(slope[c][k] * (q[c] - p[c]) for c in CLASSES) for k in range(len(d))])
        divergence += kl(p, moved(logits, [epsilon * x for x in d])) / 6
        unsureness += entropy(logits) / 6
    return supervised(rows) + adversarial_weight * ramp * divergence + entropy_weight * unsureness


def tsa_supervised(rows: Rows, threshold: float) -> float:
    costs = [cross_entropy(rows[i], y) for i, y in enumerate(LABELS) if softmax(rows[i])[y] <= threshold]
    return sum(costs) / len(costs) if costs else 0.0


def uda(
    rows: Rows,
    threshold: float = 0.8,
    sharpening: float = 0.4,
    unlabeled_weight: float = 1.0,
    tsa: str = "none",
) -> float:
    # Step 2 of 10, 3 classes.
    alpha = {"none": math.inf, "linear": 0.2, "exp": math.exp(-4.0), "log": 1 - math.exp(-1.0)}[tsa]
    total = 0.0
    for i, p in enumerate(weak(rows)):
        if max(p) >= threshold:
            total += kl(sharpen(p, sharpening), rows[10 + i]) / 6
    return tsa_supervised(rows, alpha * 2 / 3 + 1 / 3) + unlabeled_weight * total


def flexmatch(
    batches: list[Rows],
    places: list[list[int]],
    pool: int,
    threshold: float = 0.95,
    unlabeled_weight: float = 1.0,
) -> list[float]:
    learned: list[int | None] = [None] * pool
    losses = []
    for rows, place in zip(batches, places, strict=True):
        thresholds = []
        for c in CLASSES:
            denominator = max(max(learned.count(k) for k in CLASSES), learned.count(None))
            beta = learned.count(c) / denominator
            thresholds.append(threshold * beta / (2 - beta))
        total = 0.0
        for i, p in enumerate(weak(rows)):
            if max(p) >= thresholds[argmax(p)]:
                total += cross_entropy(rows[10 + i], argmax(p)) / 6
            if max(p) >= threshold:
                learned[place[i]] = argmax(p)
        losses.append(supervised(rows) + unlabeled_weight * total)
    return losses


def freematch(
    batches: list[Rows],
    unlabeled_weight: float = 1.0,
    fairness_weight: float = 0.01,
    lowest_threshold: float = 0.0,
    highest_threshold: float = 1.0,
    statistics_decay: float = DECAY,
) -> list[float]:
    decay = statistics_decay
    tau, p_tilde, h_tilde = 1 / 3, [1 / 3] * 3, [1 / 3] * 3
    losses = []
    for rows in batches:
        q = weak(rows)
        tau = decay * tau + (1 - decay) * sum(max(p) for p in q) / 6
        tau = min(max(tau, lowest_threshold), highest_threshold)
        for c in CLASSES:
            p_tilde[c] = decay * p_tilde[c] + (1 - decay) * sum(p[c] for p in q) / 6
            h_tilde[c] = decay * h_tilde[c] + (1 - decay) * [argmax(p) for p in q].count(c) / 6
        kept = [i for i in UNLABELED if max(q[i]) >= p_tilde[argmax(q[i])] / max(p_tilde) * tau]
        total = sum(cross_entropy(rows[10 + i], argmax(q[i])) for i in kept) / 6
        # Self-adaptive fairness: Σ a ln b over the classes that a kept strong view is predicted as.
        strong = [softmax(rows[10 + i]) for i in kept]
        h_bar = [sum(argmax(p) == c for p in strong) / 6 for c in CLASSES]
        b = {c: sum(p[c] for p in strong) / 6 / h_bar[c] for c in CLASSES if h_bar[c] > 0}
        a = [p_tilde[c] / h_tilde[c] for c in CLASSES]
        fairness = sum(a[c] / sum(a) * math.log(b[c] / sum(b.values())) for c in b)
        losses.append(supervised(rows) + unlabeled_weight * total + fairness_weight * fairness)
    return losses


def softmatch(
    batches: list[Rows],
    unlabeled_weight: float = 1.0,
    sigmas: float = 2.0,
    uniform_alignment: bool = True,
    statistics_decay: float = DECAY,
) -> list[float]:
    decay = statistics_decay
    mean, variance, p_tilde = 1 / 3, 1.0, [0.0] * 3
    losses = []
    for step, rows in enumerate(batches):
        q = weak(rows)
        for c in CLASSES:
            new = sum(p[c] for p in q) / 6
            p_tilde[c] = decay * p_tilde[c] + (1 - decay) * new if step > 0 else new
        confidences = []
        for p in q:
            aligned = [p[c] * (1 / 3) / p_tilde[c] for c in CLASSES] if uniform_alignment else p
            confidences.append(max(aligned) / sum(aligned))
        average = sum(confidences) / 6
        mean = decay * mean + (1 - decay) * average
        variance = decay * variance + (1 - decay) * sum((c - average) ** 2 for c in confidences) / 5
        total = 0.0
        for i, confidence in enumerate(confidences):
            below = max(mean - confidence, 0.0)
            weight = math.exp(-(below**2) / (2 * variance / sigmas**2))
            total += weight * cross_entropy(rows[10 + i], argmax(q[i])) / 6
        losses.append(supervised(rows) + unlabeled_weight * total)
    return losses
