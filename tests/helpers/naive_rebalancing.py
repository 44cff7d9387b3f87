"""The remedies for unbalanced classes as plain Python loops, from their papers' formulas.

A step is a `Step` of lists. A remedy takes a `Run` of steps, in order, and gives FixMatch's total loss for each.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import naive_methods
from naive import Rows, cross_entropy, mean_of, soft_cross_entropy, softmax
from naive_methods import argmax, unit

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


@dataclass
class Run:
    """The first steps of a run, and what a remedy knows of it."""

    steps: list[Step]
    counts: list[int]  # of labels
    strength: float | None
    pool: int  # unlabeled images
    length: int  # steps of the whole run
    remedy: Any
    given: list[int] = field(default_factory=list)  # the labels that CReST has given, once its oracle has run

    @property
    def shares(self) -> list[float]:
        return [n / sum(self.counts) for n in self.counts]


def plus(row: list[float], shift: list[float], sign: float = 1.0) -> list[float]:
    return [a + sign * b for a, b in zip(row, shift, strict=True)]


def total_loss(labels: list[int], labeled: Rows, targets: Rows, strong: Rows) -> float:
    """FixMatch's, where the probabilities `targets` give the pseudo-labels."""
    loss = sum(cross_entropy(row, y) for row, y in zip(labeled, labels, strict=True)) / len(labels)
    for q, row in zip(targets, strong, strict=True):
        if max(q) >= THRESHOLD:
            loss += cross_entropy(row, argmax(q)) / len(strong)
    return loss


def aligned(rows: Rows, wanted: list[float], seen: list[float]) -> Rows:
    return [naive_methods.aligned(softmax(row), wanted, seen) for row in rows]


def none(run: Run) -> list[float]:
    return [
        total_loss(step.labels, step.labeled, [softmax(row) for row in step.weak], step.strong) for step in run.steps
    ]


def alignment(run: Run) -> list[float]:
    means, losses = [[1 / len(run.counts)] * len(run.counts)] * 128, []
    for step in run.steps:
        targets = aligned(step.weak, run.shares, mean_of(means[-128:]))
        losses.append(total_loss(step.labels, step.labeled, targets, step.strong))
        means.append(mean_of([softmax(row) for row in step.weak]))
    return losses


def logit_adjustment(run: Run) -> list[float]:
    shift = [(run.strength or 1.0) * math.log(share) for share in run.shares]
    losses = []
    for step in run.steps:
        labeled, targets = [plus(row, shift) for row in step.labeled], [softmax(row) for row in step.weak]
        losses.append(total_loss(step.labels, labeled, targets, step.strong))
    return losses


def debiaspl(run: Run) -> list[float]:
    """200 steps are so few that the decay is PyTorch's 0.9 for BatchNorm."""
    strength, decay = run.strength or 0.5, 0.9
    average, losses = [1 / len(run.counts)] * len(run.counts), []
    for step in run.steps:
        before = [strength * math.log(p) for p in average]
        targets = [softmax(plus(row, before, -1.0)) for row in step.weak]
        mean = mean_of([softmax(row) for row in step.weak])
        average = [decay * old + (1 - decay) * new for old, new in zip(average, mean, strict=True)]
        after = [strength * math.log(p) for p in average]
        strong = [plus(row, after) for row in step.strong]
        losses.append(total_loss(step.labels, step.labeled, targets, strong))
    return losses


def abc(run: Run) -> list[float]:
    losses, counts = [], run.counts
    for number, step in enumerate(run.steps):
        labeled, weak, strong = (
            [naive_methods.linear(run.remedy.head, row) for row in rows]
            for rows in (step.labeled_features, step.weak_features, step.strong_features)
        )
        loss = total_loss(step.labels, labeled, [softmax(row) for row in weak], strong)
        draws = iter(step.draws)
        for row, label in zip(step.labeled, step.labels, strict=True):
            if next(draws) < min(counts) / counts[label]:
                loss += cross_entropy(row, label) / len(step.labels)
        for q, row in zip(map(softmax, step.weak), step.strong, strict=True):
            drawn = next(draws) < 1 - number / run.length * (1 - min(counts) / counts[argmax(q)])
            if drawn and max(q) >= THRESHOLD:
                loss += soft_cross_entropy(row, q) / len(step.strong)
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


def darp(run: Run) -> list[float]:
    wanted = [run.pool * share for share in run.shares]
    predictions = [[1 / len(wanted)] * len(wanted) for _ in range(run.pool)]
    refined, losses = predictions, []
    for number, step in enumerate(run.steps):
        for row, place in zip(step.weak, step.rows, strict=True):
            predictions[place] = softmax(row)
        targets = [softmax(row) for row in step.weak]
        if number >= 0.4 * run.length:
            if (number - int(0.4 * run.length)) % 10 == 0:
                refined = darp_refined(darp_without_noise(predictions, wanted), wanted)
            targets = [refined[place] for place in step.rows]
        losses.append(total_loss(step.labels, step.labeled, targets, step.strong))
    return losses


def crest(run: Run) -> list[float]:
    pi, counts, losses, generations = run.shares, run.counts, [], 6
    ranked = sorted(range(len(counts)), key=lambda k: -counts[k])
    rate = {k: (counts[ranked[-1 - r]] / max(counts)) ** (run.strength or 1 / 3) for r, k in enumerate(ranked)}
    means = [[1 / len(pi)] * len(pi)] * 128
    predictions: dict[int, list[float]] = {}
    run.given, generation = [-1] * run.pool, 0
    for number, step in enumerate(run.steps):
        if number >= (generation + 1) * run.length / generations:
            generation += 1
            run.given = [-1] * run.pool
            for k in range(len(pi)):
                of_class = [place for place, q in sorted(predictions.items()) if argmax(q) == k]
                of_class.sort(key=lambda place: -max(predictions[place]))
                for place in of_class[: int(rate[k] * len(of_class))]:
                    run.given[place] = k
        for row, place in zip(step.weak, step.rows, strict=True):
            predictions[place] = softmax(row)
        exponent = 1.0 - 0.5 * generation / (generations - 1)
        wanted = [share**exponent / sum(other**exponent for other in pi) for share in pi]
        targets = aligned(step.weak, wanted, mean_of(means[-128:]))
        losses.append(total_loss(step.labels, step.labeled, targets, step.strong))
        means.append(mean_of([softmax(row) for row in step.weak]))
    return losses


def daso(run: Run) -> list[float]:
    classes = range(len(run.counts))
    queues: list[Rows] = [[] for _ in classes]
    counts, used, losses = [0 for _ in classes], [1 for _ in classes], []
    for number, step in enumerate(run.steps):
        for features, label in zip(step.teacher_features, step.labels, strict=True):
            queues[label] = [*queues[label], features][-256:]
        targets, extra = [softmax(row) for row in step.weak], 0.0
        if number >= 0.02 * run.length:
            prototypes = [unit(mean_of(queue)) for queue in queues]
            for i, q in enumerate(targets):
                weak, strong = (
                    [naive_methods.dot(unit(rows[i]), c) / 0.05 for c in prototypes]
                    for rows in (step.weak_features, step.strong_features)
                )
                extra += soft_cross_entropy(strong, softmax(weak)) / len(targets)
                v = (used[argmax(q)] / max(used)) ** (1 / (run.strength or 1.5))
                targets[i] = [(1 - v) * a + v * b for a, b in zip(q, softmax(weak), strict=True)]
        losses.append(total_loss(step.labels, step.labeled, targets, step.strong) + extra)
        for q in targets:
            counts[argmax(q)] += 1
        if (number + 1) % 100 == 0:
            counts, used = [0 for _ in classes], counts
    return losses


ORACLES: dict[str, Callable[[Run], list[float]]] = {
    "none": none,
    "alignment": alignment,
    "logit-adjustment": logit_adjustment,
    "debiaspl": debiaspl,
    "abc": abc,
    "darp": darp,
    "daso": daso,
    "crest": crest,
}
