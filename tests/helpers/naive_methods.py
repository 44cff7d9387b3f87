"""The losses of the methods as plain Python loops, from their papers' formulas.

A function takes a method, for its hyperparameters, and the steps of a run of 10, in order; it gives the loss of each.
Methods that mix images or need a network that is not looked up have theirs in tests/methods/test_<name>.py.
"""

import math
from dataclasses import dataclass
from typing import Any

import naive
from naive import Rows, cross_entropy, mean_of, one_hot, sharpened, soft_cross_entropy, softmax

STEPS = 10
CLASSES = range(3)
DECAY = 0.9  # of statistics in 10 steps: 1 - 0.001 · 131,072 / 10 is below the least decay, 0.9


@dataclass
class Step:
    """What a method sees in a step: logits and features of all views, the teacher's, and which images they are."""

    number: int
    labels: list[int]
    labeled: list[Rows]
    unlabeled: list[Rows]
    labeled_features: list[Rows]
    unlabeled_features: list[Rows]
    teacher: list[Rows]  # of the unlabeled views
    rows: list[int]
    labeled_rows: list[int]

    def supervised(self) -> float:
        return sum(cross_entropy(row, y) for row, y in zip(self.labeled[0], self.labels, strict=True)) / 4

    def weak(self) -> Rows:
        """The predictions for the weak views."""
        return [softmax(row) for row in self.unlabeled[0]]

    def ramp(self, fraction: float) -> float:
        return min(1.0, self.number / (fraction * STEPS)) if fraction else 1.0


def argmax(row: list[float]) -> int:
    return row.index(max(row))


def log_softmax(row: list[float]) -> list[float]:
    return [-cross_entropy(row, c) for c in range(len(row))]


def kl(targets: list[float], logits: list[float]) -> float:
    terms = zip(targets, log_softmax(logits), strict=True)
    return sum(t * (math.log(t) - log_q) for t, log_q in terms if t > 0)


def entropy(logits: list[float]) -> float:
    return -sum(p * log_p for p, log_p in zip(softmax(logits), log_softmax(logits), strict=True))


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def unit(a: list[float]) -> list[float]:
    return [x / math.hypot(*a) for x in a]


def linear(layer: Any, row: list[float]) -> list[float]:
    return [dot(line, row) + b for line, b in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)]


def embedding(projection: Any, row: list[float]) -> list[float]:
    first, _, last = projection.layers
    return unit(linear(last, [x if x > 0 else 0.1 * x for x in linear(first, row)]))


def aligned(p: list[float], wanted: list[float], seen: list[float]) -> list[float]:
    ratio = [v * w / max(s, 1e-6) for v, w, s in zip(p, wanted, seen, strict=True)]
    return [v / sum(ratio) for v in ratio]


def supervised(h: Any, steps: list[Step]) -> list[float]:
    return [step.supervised() for step in steps]


def pseudo_label(h: Any, steps: list[Step]) -> list[float]:
    losses = []
    for step in steps:
        confident = [(row, q) for row, q in zip(step.unlabeled[0], step.weak(), strict=True) if max(q) >= h.threshold]
        total = sum(cross_entropy(row, argmax(q)) for row, q in confident) / 6
        losses.append(step.supervised() + h.unlabeled_weight * step.ramp(h.ramp) * total)
    return losses


def _squared_differences(h: Any, steps: list[Step], pairs: list[tuple[Rows, Rows]]) -> list[float]:
    losses = []
    for step, (first, second) in zip(steps, pairs, strict=True):
        total = 0.0
        for one, other in zip(first, second, strict=True):
            total += sum((a - b) ** 2 for a, b in zip(softmax(one), softmax(other), strict=True)) / (6 * 3)
        losses.append(step.supervised() + h.unlabeled_weight * step.ramp(h.ramp) * total)
    return losses


def pi_model(h: Any, steps: list[Step]) -> list[float]:
    return _squared_differences(h, steps, [(step.unlabeled[0], step.unlabeled[1]) for step in steps])


def mean_teacher(h: Any, steps: list[Step]) -> list[float]:
    return _squared_differences(h, steps, [(step.unlabeled[0], step.teacher[1]) for step in steps])


def uda(h: Any, steps: list[Step]) -> list[float]:
    losses = []
    for step in steps:
        done = step.number / STEPS
        alpha = {"none": math.inf, "linear": done, "exp": math.exp(5 * (done - 1)), "log": 1 - math.exp(-5 * done)}
        threshold = alpha[h.tsa] * 2 / 3 + 1 / 3
        labeled = zip(step.labeled[0], step.labels, strict=True)
        costs = [cross_entropy(row, y) for row, y in labeled if softmax(row)[y] <= threshold]
        total = 0.0
        for q, strong in zip(step.weak(), step.unlabeled[1], strict=True):
            if max(q) >= h.threshold:
                total += kl(sharpened(q, h.sharpening), strong) / 6
        losses.append(sum(costs) / max(len(costs), 1) + h.unlabeled_weight * total)
    return losses


def fixmatch(h: Any, steps: list[Step]) -> list[float]:
    losses = []
    for step in steps:
        both = zip(step.weak(), step.unlabeled[1], strict=True)
        total = sum(cross_entropy(strong, argmax(q)) for q, strong in both if max(q) >= h.threshold) / 6
        losses.append(step.supervised() + h.unlabeled_weight * total)
    return losses


def rankingmatch(h: Any, steps: list[Step]) -> list[float]:
    def rank(rows: Rows, labels: list[int]) -> float:
        triplet = (h.margin, h.soft_margin, h.l2_normalize, h.squared)
        losses = {
            "bm": lambda: naive.batch_mean(rows, labels, *triplet, h.true_mean),
            "bh": lambda: naive.batch_hard(rows, labels, *triplet, h.true_triplets),
            "ba": lambda: naive.batch_all(rows, labels, *triplet),
            "ct": lambda: naive.contrastive(rows, labels, h.temperature, h.l2_normalize, h.similarity),
        }
        return sum(losses[kind]() for kind in h.ranking.split("+"))

    losses = []
    for step, loss in zip(steps, fixmatch(h, steps), strict=True):
        on_features = h.rank_on == "features"
        labeled = (step.labeled_features if on_features else step.labeled)[0]
        strong = (step.unlabeled_features if on_features else step.unlabeled)[1]
        ranked = [
            (row, argmax(q)) for row, q in zip(strong, step.weak(), strict=True) if h.rank_all or max(q) >= h.threshold
        ]
        total = rank(labeled, step.labels) + rank([row for row, _ in ranked], [label for _, label in ranked])
        losses.append(loss + h.ranking_weight * step.ramp(h.ranking_ramp) * total)
    return losses


def flexible(learned: list[int | None], threshold: float) -> list[float]:
    """FlexMatch's thresholds."""
    most = max(*(learned.count(c) for c in CLASSES), learned.count(None))
    return [threshold * learned.count(c) / (2 * most - learned.count(c)) for c in CLASSES]


def flexmatch(h: Any, steps: list[Step]) -> list[float]:
    learned: list[int | None] = [None] * 6
    losses = []
    for step in steps:
        thresholds, total = flexible(learned, h.threshold), 0.0
        for q, strong, place in zip(step.weak(), step.unlabeled[1], step.rows, strict=True):
            if max(q) >= thresholds[argmax(q)]:
                total += cross_entropy(strong, argmax(q)) / 6
            if max(q) >= h.threshold:
                learned[place] = argmax(q)
        losses.append(step.supervised() + h.unlabeled_weight * total)
    return losses


def sequencematch(h: Any, steps: list[Step]) -> list[float]:
    learned: list[int | None] = [None] * 6
    losses = []
    for step in steps:
        thresholds, total = flexible(learned, h.threshold), 0.0
        for i, q in enumerate(step.weak()):
            if max(q) >= thresholds[argmax(q)]:
                total += cross_entropy(step.unlabeled[2][i], argmax(q)) / 6
            if max(q) >= h.threshold:
                learned[step.rows[i]] = argmax(q)
            for milder, other in ((0, 1), (1, 2), (0, 2)):
                target = softmax(step.unlabeled[milder][i])
                if max(target) >= h.threshold:
                    total += kl(sharpened(target, h.sharpening), step.unlabeled[other][i]) / 6
        losses.append(step.supervised() + h.unlabeled_weight * total)
    return losses


def freematch(h: Any, steps: list[Step]) -> list[float]:
    decay = DECAY if h.statistics_decay is None else h.statistics_decay
    tau, p_tilde, h_tilde = 1 / 3, [1 / 3] * 3, [1 / 3] * 3
    losses = []
    for step in steps:
        q, strong = step.weak(), step.unlabeled[1]
        tau = decay * tau + (1 - decay) * sum(max(p) for p in q) / 6
        tau = min(max(tau, h.lowest_threshold), h.highest_threshold)
        for c in CLASSES:
            p_tilde[c] = decay * p_tilde[c] + (1 - decay) * sum(p[c] for p in q) / 6
            h_tilde[c] = decay * h_tilde[c] + (1 - decay) * [argmax(p) for p in q].count(c) / 6
        kept = [i for i, p in enumerate(q) if max(p) >= p_tilde[argmax(p)] / max(p_tilde) * tau]
        total = sum(cross_entropy(strong[i], argmax(q[i])) for i in kept) / 6
        # Self-adaptive fairness: Σ a ln b over the classes that a kept strong view is predicted as.
        predicted = [softmax(strong[i]) for i in kept]
        h_bar = [sum(argmax(p) == c for p in predicted) / 6 for c in CLASSES]
        b = {c: sum(p[c] for p in predicted) / 6 / h_bar[c] for c in CLASSES if h_bar[c] > 0}
        a = [p_tilde[c] / h_tilde[c] for c in CLASSES]
        fairness = sum(a[c] / sum(a) * math.log(b[c] / sum(b.values())) for c in b)
        losses.append(step.supervised() + h.unlabeled_weight * total + h.fairness_weight * fairness)
    return losses


def softmatch(h: Any, steps: list[Step]) -> list[float]:
    decay = DECAY if h.statistics_decay is None else h.statistics_decay
    mean, variance, p_tilde = 1 / 3, 1.0, [0.0] * 3
    losses = []
    for count, step in enumerate(steps):
        q = step.weak()
        new = mean_of(q)
        p_tilde = [decay * a + (1 - decay) * b for a, b in zip(p_tilde, new, strict=True)] if count else new
        confidences = [max(aligned(p, [1 / 3] * 3, p_tilde) if h.uniform_alignment else p) for p in q]
        average = sum(confidences) / 6
        mean = decay * mean + (1 - decay) * average
        variance = decay * variance + (1 - decay) * sum((c - average) ** 2 for c in confidences) / 5
        total = 0.0
        for confidence, p, strong in zip(confidences, q, step.unlabeled[1], strict=True):
            below = max(mean - confidence, 0.0)
            total += math.exp(-(below**2) / (2 * variance / h.sigmas**2)) * cross_entropy(strong, argmax(p)) / 6
        losses.append(step.supervised() + h.unlabeled_weight * total)
    return losses


def adamatch(h: Any, steps: list[Step]) -> list[float]:
    recent_labeled, recent = ([[1 / 3] * 3 for _ in range(128)] for _ in range(2))
    losses = []
    for step in steps:
        q = [softmax(row) for row in step.labeled[0]]
        recent_labeled[step.number % 128], recent[step.number % 128] = mean_of(q), mean_of(step.weak())
        cutoff = h.relative_threshold * sum(max(row) for row in q) / 4
        unlabeled = labeled = 0.0
        for p, strong in zip(step.weak(), step.unlabeled[1], strict=True):
            target = aligned(p, mean_of(recent_labeled), mean_of(recent))
            if max(target) >= cutoff:
                unlabeled += soft_cross_entropy(strong, target) / 6
        for view in step.labeled:
            labeled += sum(cross_entropy(row, y) for row, y in zip(view, step.labels, strict=True)) / 4
        weight = 0.5 - math.cos(min(math.pi, 2 * math.pi * step.number / STEPS)) / 2
        losses.append(labeled + h.unlabeled_weight * weight * unlabeled)
    return losses


def dash(h: Any, steps: list[Step]) -> list[float]:
    """The threshold falls every 10/1024 of training."""
    first, initial = int(h.warm_up * STEPS), 0.0
    losses = []
    for step in steps:
        after, total = step.number - first, 0.0
        if after == 0:
            initial = step.supervised()
        rho = max(1.0001 * h.loss_decay ** -int(after / STEPS / (10 / 1024)) * initial, h.least_loss)
        for q, weak, strong in zip(step.weak(), *step.unlabeled, strict=True):
            target = one_hot(argmax(q), 3) if rho == h.least_loss else sharpened(q, h.sharpening)
            if after >= 0 and soft_cross_entropy(weak, target) <= rho:
                total += soft_cross_entropy(strong, target) / 6
        losses.append(step.supervised() + h.unlabeled_weight * total)
    return losses


def comatch(h: Any, steps: list[Step]) -> list[float]:
    recent: Rows = []
    memory: list[tuple[list[float], list[float]]] = []
    losses = []
    for step in steps:
        labeled_z, z, one, other = (
            [embedding(h.projection, row) for row in rows]
            for rows in (step.labeled_features[0], *step.unlabeled_features)
        )
        recent = [*recent, mean_of(step.weak())][-32:]
        predictions = [aligned(q, [1.0] * 3, mean_of(recent)) for q in step.weak()]
        targets = predictions
        if len(memory) == h.memory:
            targets = []
            for own, p in zip(z, predictions, strict=True):
                attention = softmax([dot(own, near) / h.similarity_temperature for near, _ in memory])
                near = [sum(a * q[c] for a, (_, q) in zip(attention, memory, strict=True)) for c in CLASSES]
                targets.append([h.smoothing * a + (1 - h.smoothing) * b for a, b in zip(p, near, strict=True)])
        memory += zip(z, predictions, strict=True)
        memory += [(row, one_hot(y, 3)) for row, y in zip(labeled_z, step.labels, strict=True)]
        memory = memory[-h.memory :]
        total = step.supervised()
        for i, target in enumerate(targets):
            if max(target) >= h.threshold:
                total += h.unlabeled_weight * soft_cross_entropy(step.unlabeled[1][i], target) / 6
            weights = [1.0 if i == j else dot(target, q) for j, q in enumerate(targets)]
            weights = [w if w >= h.graph_threshold else 0.0 for w in weights]
            similarity = [dot(one[i], row) / h.similarity_temperature for row in other]
            total += h.contrastive_weight * soft_cross_entropy(similarity, [w / sum(weights) for w in weights]) / 6
        losses.append(total)
    return losses


def simmatch(h: Any, steps: list[Step]) -> list[float]:
    recent: Rows = []
    memory: dict[int, tuple[list[float], int]] = {}
    losses = []
    for step in steps:
        labeled_z, weak_z, strong_z = (
            [embedding(h.projection, row) for row in rows]
            for rows in (step.labeled_features[0], *step.unlabeled_features)
        )
        for place in sorted({image: place for place, image in enumerate(step.labeled_rows)}.values()):
            image, new, m = step.labeled_rows[place], labeled_z[place], h.embedding_decay
            if image in memory:
                new = unit([m * old + (1 - m) * value for old, value in zip(memory[image][0], new, strict=True)])
            memory[image] = (new, step.labels[place])
        recent = [*recent, mean_of(step.weak())][-32:]
        total, seen = step.supervised(), sorted(memory)
        for q, z, strong, student in zip(step.weak(), weak_z, step.unlabeled[1], strong_z, strict=True):
            p = aligned(q, [1.0] * 3, mean_of(recent))
            w = softmax([dot(z, memory[k][0]) / h.similarity_temperature for k in seen])
            by_class = [sum(v for v, k in zip(w, seen, strict=True) if memory[k][1] == c) for c in CLASSES]
            target = [h.smoothing * a + (1 - h.smoothing) * b for a, b in zip(p, by_class, strict=True)]
            if max(target) >= h.threshold:
                total += h.unlabeled_weight * soft_cross_entropy(strong, target) / 6
            calibrated = [v * p[memory[k][1]] for v, k in zip(w, seen, strict=True)]
            similarity = [dot(student, memory[k][0]) / h.similarity_temperature for k in seen]
            total += h.instance_weight * soft_cross_entropy(similarity, [v / sum(calibrated) for v in calibrated]) / 6
        losses.append(total)
    return losses


def defixmatch(h: Any, steps: list[Step]) -> list[float]:
    def consistency(weak: Rows, strong: Rows) -> float:
        both = [(softmax(row), other) for row, other in zip(weak, strong, strict=True)]
        return sum(cross_entropy(other, argmax(q)) for q, other in both if max(q) >= h.threshold) / len(weak)

    losses = []
    for step in steps:
        labeled = sum(
            cross_entropy(row, y) / 8 for view in step.labeled for row, y in zip(view, step.labels, strict=True)
        )
        losses.append(labeled + h.unlabeled_weight * (consistency(*step.unlabeled) - consistency(*step.labeled)))
    return losses


def refixmatch(h: Any, steps: list[Step]) -> list[float]:
    losses = fixmatch(h, steps)
    for i, step in enumerate(steps):
        for q, strong in zip(step.weak(), step.unlabeled[1], strict=True):
            if max(q) < h.threshold:
                losses[i] += h.unlabeled_weight * kl(sharpened(q, h.sharpening), strong) / 6
    return losses


def crmatch(h: Any, steps: list[Step]) -> list[float]:
    losses = fixmatch(h, steps)
    for i, step in enumerate(steps):
        for q, *features in zip(step.weak(), *step.unlabeled_features, strict=True):
            if max(q) >= h.threshold:
                cosine = dot(*(unit(linear(h.projection, row)) for row in features))
                losses[i] += h.distance_weight * max(0.0, cosine) / 6
        first, _, last = h.rotation_head
        for row in step.unlabeled_features[0][:4]:  # a single pixel looks the same under all rotations
            logits = linear(last, [max(0.0, v) for v in linear(first, row)])
            losses[i] += h.rotation_weight * sum(cross_entropy(logits, turn) for turn in range(4)) / 16
    return losses


def finessl(h: Any, steps: list[Step]) -> list[float]:
    learned: dict[int, int] = {}
    losses = []
    for step in steps:
        counts = [list(learned.values()).count(c) for c in CLASSES]
        status = [count / max([*counts, 1]) for count in counts]
        margins = [h.class_margin * (max(status) - min(status)) * (1 - s) / (1 + s) for s in status]

        def balanced(row: list[float], label: int, margins: list[float] = margins) -> float:
            return cross_entropy([v if c == label else v + margins[label] for c, v in enumerate(row)], label)

        labeled = zip(step.labeled[0], step.labeled_features[0], step.labels, strict=True)
        total = sum(balanced(row, y) + cross_entropy(linear(h.auxiliary_head, own), y) for row, own, y in labeled) / 4
        costs = []
        for i, q in enumerate(step.weak()):
            label = argmax(q)
            weight = max(softmax(linear(h.auxiliary_head, step.unlabeled_features[0][i])))
            for view in (1, 2):
                total += h.unlabeled_weight * weight * balanced(step.unlabeled[view][i], label) / 12
                if max(q) >= h.threshold:
                    target = [1 - h.label_smoothing if c == label else h.label_smoothing / 2 for c in CLASSES]
                    auxiliary = linear(h.auxiliary_head, step.unlabeled_features[view][i])
                    costs.append(soft_cross_entropy(auxiliary, target))
            if max(q) >= h.threshold:
                learned[step.rows[i]] = label
        losses.append(total + sum(costs) / max(len(costs), 1))
    return losses


ORACLES = {
    **{
        function.__name__.replace("_", "-"): function for function in (supervised, pseudo_label, pi_model, mean_teacher)
    },
    **{function.__name__: function for function in (uda, flexmatch, freematch, softmatch, adamatch, dash, comatch)},
    **{function.__name__: function for function in (simmatch, defixmatch, refixmatch, crmatch, sequencematch, finessl)},
    **dict.fromkeys(("fixmatch-ra", "fixmatch-cta"), fixmatch),
    **{f"rankingmatch-{ranking}": rankingmatch for ranking in ("bm", "ct", "bh", "ba", "bm+ct")},
}
