"""ReFixMatch against loops written from its paper."""

from typing import Any

import naive
import naive_methods
import pytest
from lookup import LABELED, LABELS, UNLABELED, losses_of, prepared, random_model


def naive_total(
    rows: naive.Rows, threshold: float = 0.95, sharpening: float = 0.5, unlabeled_weight: float = 1.0
) -> float:
    total = sum(naive.cross_entropy(rows[i], label) for i, label in enumerate(LABELS)) / LABELED
    for i in range(UNLABELED):
        q, strong = naive.softmax(rows[4 + i]), rows[10 + i]
        if max(q) >= threshold:
            cost = naive.cross_entropy(strong, q.index(max(q)))
        else:
            cost = naive_methods.kl(naive.sharpened(q, sharpening), strong)
        total += unlabeled_weight * cost / UNLABELED
    return total


@pytest.mark.parametrize("scale", [0.1, 3.0, 1000.0])
@pytest.mark.parametrize("given", [{}, {"threshold": 0.5}, {"sharpening": 0.9}, {"unlabeled_weight": 0.3}])
def test_loss_equals_an_independent_computation(given: dict[str, Any], scale: float) -> None:
    model = random_model(scale)
    losses = losses_of(prepared("refixmatch", **given), model)
    assert losses.total.item() == pytest.approx(naive_total(model.logits.tolist(), **given), rel=1e-9)


def test_targets_are_constants() -> None:
    model = random_model(1.0)
    losses_of(prepared("refixmatch"), model).total.backward()
    assert model.logits.grad is not None
    assert model.logits.grad[4:10].abs().sum() == 0
    assert (model.logits.grad[10:16].abs().sum(1) > 0).all()  # every image is used
