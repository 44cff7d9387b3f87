"""CR-Match against loops written from its authors' definition."""

import math
from typing import Any

import naive
import pytest
import torch
from lookup import LABELED, LABELS, UNLABELED, Lookup, losses_of, prepared, random_model
from torch import Tensor, nn

from rankingmatch.methods.crmatch import CRMatch, rotations

DEFAULTS: dict[str, float] = {
    "threshold": 0.95,
    "unlabeled_weight": 1.0,
    "distance_weight": 1.0,
    "rotation_weight": 1.0,
}


def linear(layer: nn.Module, row: list[float]) -> list[float]:
    assert isinstance(layer, nn.Linear)
    weights, biases = layer.weight.tolist(), layer.bias.tolist()
    return [sum(w * x for w, x in zip(line, row, strict=True)) + b for line, b in zip(weights, biases, strict=True)]


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def naive_total(method: CRMatch, model: Lookup, **given: Any) -> float:
    chosen = {**DEFAULTS, **given}
    rows, features = model.logits.tolist(), model.features.tolist()
    total = sum(naive.cross_entropy(rows[i], label) for i, label in enumerate(LABELS)) / LABELED
    for i in range(UNLABELED):
        q = naive.softmax(rows[4 + i])
        if max(q) >= chosen["threshold"]:
            total += chosen["unlabeled_weight"] * naive.cross_entropy(rows[10 + i], q.index(max(q))) / UNLABELED
            z = [linear(method.projection, features[start + i]) for start in (4, 10)]
            total += chosen["distance_weight"] * max(0.0, cosine(*z)) / UNLABELED
    first, _, last = method.rotation_head
    for i in range(LABELED):  # a single pixel looks the same under all rotations
        logits = linear(last, [max(0.0, v) for v in linear(first, features[4 + i])])
        cost = sum(naive.cross_entropy(logits, turn) for turn in range(4)) / (4 * LABELED)
        total += chosen["rotation_weight"] * cost
    return total


@pytest.mark.parametrize("scale", [0.1, 3.0, 1000.0])
@pytest.mark.parametrize(
    "given", [{}, {"threshold": 0.5}, {"unlabeled_weight": 0.3}, {"distance_weight": 0.3}, {"rotation_weight": 0.3}]
)
def test_loss_equals_an_independent_computation(given: dict[str, Any], scale: float) -> None:
    model, method = random_model(scale), prepared("crmatch", **given)
    assert isinstance(method, CRMatch)
    assert losses_of(method, model).total.item() == pytest.approx(naive_total(method, model, **given), rel=1e-9)


@pytest.mark.parametrize(("width", "expected"), [(3, [0, 1, 2, 3]), (2, [0, 2])])
def test_images_are_rotated_by_all_quarter_turns_that_keep_their_shape(width: int, expected: list[int]) -> None:
    images = torch.arange(2 * 3 * width, dtype=torch.uint8).view(2, 1, 3, width)
    rotated, turns = rotations(images)
    assert turns.tolist() == [turn for turn in expected for _ in range(2)]
    for image, turn in zip(rotated, turns.tolist(), strict=True):
        candidates: list[Tensor] = [torch.rot90(one, turn, (1, 2)) for one in images]
        assert any(torch.equal(image, candidate) for candidate in candidates)


def test_pseudo_labels_are_constants_and_both_views_move_apart() -> None:
    model = random_model(1000.0)
    losses_of(prepared("crmatch"), model).total.backward()
    assert model.logits.grad is not None
    assert model.features.grad is not None
    assert model.logits.grad[4:10].abs().sum() == 0
    assert model.features.grad[4:10].abs().sum() > 0
    assert model.features.grad[10:16].abs().sum() > 0
