"""CoMatch against loops written from its paper."""

import math
from typing import Any

import naive
import pytest
import torch
from lookup import CLASSES, LABELED, LABELS, UNLABELED, Lookup, embedded, losses_of, prepared, random_model

from rankingmatch.methods import Method
from rankingmatch.methods.comatch import pseudo_label_graph

DEFAULTS: dict[str, Any] = {
    "threshold": 0.95,
    "unlabeled_weight": 1.0,
    "contrastive_weight": 1.0,
    "smoothing": 0.9,
    "similarity_temperature": 0.2,
    "graph_threshold": 0.8,
    "memory": 2560,
}
Remembered = list[tuple[list[float], list[float]]]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def smoothed(z: list[float], p: list[float], memory: Remembered, chosen: dict[str, Any]) -> list[float]:
    if len(memory) < chosen["memory"]:
        return p
    weights = [math.exp(dot(z, other) / chosen["similarity_temperature"]) for other, _ in memory]
    alpha = chosen["smoothing"]
    neighbors = [
        sum(w * q[c] for w, (_, q) in zip(weights, memory, strict=True)) / sum(weights) for c in range(CLASSES)
    ]
    return [alpha * own + (1 - alpha) * near for own, near in zip(p, neighbors, strict=True)]


def graph_row(i: int, targets: naive.Rows, threshold: float) -> list[float]:
    weights = [1.0 if i == j else dot(targets[i], q) for j, q in enumerate(targets)]
    weights = [w if w >= threshold else 0.0 for w in weights]
    return [w / sum(weights) for w in weights]


def naive_losses(method: Method, models: list[Lookup], **given: Any) -> list[float]:
    chosen = {**DEFAULTS, **given}
    recent: naive.Rows = []
    memory: Remembered = []
    losses = []
    for model in models:
        rows, z = model.logits.tolist(), embedded(method, model.features)
        q = [naive.softmax(row) for row in rows[4:10]]
        recent = [*recent, naive.mean_of(q)][-32:]
        average = naive.mean_of(recent)
        aligned = [[v / a for v, a in zip(row, average, strict=True)] for row in q]
        aligned = [[v / sum(row) for v in row] for row in aligned]
        targets = [smoothed(z[4 + i], aligned[i], memory, chosen) for i in range(UNLABELED)]
        memory += [(z[4 + i], aligned[i]) for i in range(UNLABELED)]
        memory += [(z[i], naive.one_hot(label, CLASSES)) for i, label in enumerate(LABELS)]
        memory = memory[-chosen["memory"] :]
        total = sum(naive.cross_entropy(rows[i], label) for i, label in enumerate(LABELS)) / LABELED
        for i, target in enumerate(targets):
            if max(target) >= chosen["threshold"]:
                total += chosen["unlabeled_weight"] * naive.soft_cross_entropy(rows[10 + i], target) / UNLABELED
            similarity = [dot(z[10 + i], z[16 + j]) / chosen["similarity_temperature"] for j in range(UNLABELED)]
            cost = naive.soft_cross_entropy(similarity, graph_row(i, targets, chosen["graph_threshold"]))
            total += chosen["contrastive_weight"] * cost / UNLABELED
        losses.append(total)
    return losses


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"memory": 25},  # full from the fourth step on; a batch wraps around its end
        {"memory": 7},  # smaller than a batch
        {"memory": 20, "threshold": 0.5},
        {"unlabeled_weight": 0.3, "threshold": 0.5},
        {"contrastive_weight": 0.3},
        {"memory": 20, "smoothing": 0.2},
        {"memory": 20, "similarity_temperature": 0.7},
        {"graph_threshold": 0.3},
    ],
)
def test_loss_equals_an_independent_computation(given: dict[str, Any], scale: float) -> None:
    models = [random_model(scale, seed) for seed in range(6)]
    method = prepared("comatch", **given)
    totals = [losses_of(method, model, step).total.item() for step, model in enumerate(models)]
    assert totals == pytest.approx(naive_losses(method, models, **given), rel=1e-9)


def test_the_alignment_forgets_batches_after_the_last_32() -> None:
    models = [random_model(1.0, seed) for seed in range(35)]
    method = prepared("comatch")
    totals = [losses_of(method, model, step).total.item() for step, model in enumerate(models)]
    assert totals[-1] == pytest.approx(naive_losses(method, models)[-1], rel=1e-9)


def test_each_row_of_the_graph_sums_to_one() -> None:
    targets = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    graph = pseudo_label_graph(targets, 0.8)
    assert graph.tolist() == [
        pytest.approx(row) for row in ([1 / 1.9, 0.9 / 1.9, 0], [0.9 / 1.9, 1 / 1.9, 0], [0, 0, 1])
    ]


def test_targets_are_constants() -> None:
    model, method = random_model(3.0), prepared("comatch", threshold=0.5)
    losses_of(method, model).total.backward()
    assert model.logits.grad is not None
    assert model.features.grad is not None
    assert model.logits.grad[4:10].abs().sum() == 0
    assert model.features.grad[:10].abs().sum() == 0  # embeddings of weak views only give targets
    assert (model.features.grad[10:22].abs().sum(1) > 0).all()
    assert all(parameter.grad is not None for parameter in method.parameters())
