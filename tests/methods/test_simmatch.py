"""SimMatch against loops written from its paper."""

import math
from typing import Any

import naive
import pytest
import torch
from lookup import (
    CLASSES,
    LABELED,
    LABELS,
    UNLABELED,
    Lookup,
    embedded,
    lookup_batch,
    losses_of,
    prepared,
    random_model,
)

from rankingmatch.methods import Method
from rankingmatch.methods.simmatch import SimMatch

DEFAULTS: dict[str, Any] = {
    "threshold": 0.95,
    "unlabeled_weight": 1.0,
    "instance_weight": 1.0,
    "smoothing": 0.9,
    "similarity_temperature": 0.1,
    "embedding_decay": 0.7,
}
# The labeled images of each step; labels belong to positions in the batch, so an image keeps its label.
DRAWN = [[0, 1, 1, 3], [0, 1, 2, 3], [0, 2, 1, 3], [0, 1, 2, 3]]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def unit(a: list[float]) -> list[float]:
    return [x / math.sqrt(dot(a, a)) for x in a]


def naive_losses(method: Method, models: list[Lookup], drawn: list[list[int]], **given: Any) -> list[float]:
    chosen = {**DEFAULTS, **given}
    recent: naive.Rows = []
    memory: dict[int, tuple[list[float], int]] = {}
    losses = []
    for model, labeled in zip(models, drawn, strict=True):
        rows, z = model.logits.tolist(), embedded(method, model.features)
        for place in sorted({image: place for place, image in enumerate(labeled)}.values()):
            image, new = labeled[place], z[place]
            if image in memory:
                m = chosen["embedding_decay"]
                new = unit([m * old + (1 - m) * value for old, value in zip(memory[image][0], new, strict=True)])
            memory[image] = (new, LABELS[place])
        q = [naive.softmax(row) for row in rows[4:10]]
        recent.append(naive.mean_of(q))
        average = naive.mean_of(recent)
        total = sum(naive.cross_entropy(rows[i], label) for i, label in enumerate(LABELS)) / LABELED
        seen = sorted(memory)
        for i in range(UNLABELED):
            p = [v / a for v, a in zip(q[i], average, strict=True)]
            p = [v / sum(p) for v in p]
            t = chosen["similarity_temperature"]
            w = naive.softmax([dot(z[4 + i], memory[k][0]) / t for k in seen])
            by_class = [sum(w[n] for n, k in enumerate(seen) if memory[k][1] == c) for c in range(CLASSES)]
            target = [chosen["smoothing"] * a + (1 - chosen["smoothing"]) * b for a, b in zip(p, by_class, strict=True)]
            calibrated = [w[n] * p[memory[k][1]] for n, k in enumerate(seen)]
            calibrated = [v / sum(calibrated) for v in calibrated]
            if max(target) >= chosen["threshold"]:
                total += chosen["unlabeled_weight"] * naive.soft_cross_entropy(rows[10 + i], target) / UNLABELED
            student = [dot(z[10 + i], memory[k][0]) / t for k in seen]
            total += chosen["instance_weight"] * naive.soft_cross_entropy(student, calibrated) / UNLABELED
        losses.append(total)
    return losses


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"threshold": 0.5},
        {"unlabeled_weight": 0.3, "threshold": 0.5},
        {"instance_weight": 0.3},
        {"smoothing": 0.3, "threshold": 0.4},
        {"similarity_temperature": 0.7},
        {"embedding_decay": 0.2},
    ],
)
def test_loss_equals_an_independent_computation(given: dict[str, Any], scale: float) -> None:
    models = [random_model(scale, seed) for seed in range(4)]
    method = prepared("simmatch", **given)
    batches = [lookup_batch(method, labeled_rows=drawn) for drawn in DRAWN]
    totals = [losses_of(method, model, step, batches[step]).total.item() for step, model in enumerate(models)]
    assert totals == pytest.approx(naive_losses(method, models, DRAWN, **given), rel=1e-9)


def test_labeled_images_not_seen_yet_do_not_count() -> None:
    method = prepared("simmatch")
    assert isinstance(method, SimMatch)
    losses_of(method, random_model(1.0), batch=lookup_batch(method, labeled_rows=[1, 1, 1, 1]))
    assert method.labels.tolist() == [-1, LABELS[3], -1, -1]
    assert torch.equal(method.embeddings[0], torch.zeros_like(method.embeddings[0]))


def test_targets_are_constants() -> None:
    model, method = random_model(3.0), prepared("simmatch", threshold=0.5)
    losses_of(method, model).total.backward()
    assert model.logits.grad is not None
    assert model.features.grad is not None
    assert model.logits.grad[4:10].abs().sum() == 0
    assert model.features.grad[:10].abs().sum() == 0  # of labeled and weak views, embeddings only give targets
    assert (model.features.grad[10:16].abs().sum(1) > 0).all()
    assert all(parameter.grad is not None for parameter in method.parameters())
