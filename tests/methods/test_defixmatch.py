"""DeFixMatch against loops written from its paper."""

from typing import Any

import naive
import pytest
from lookup import LABELED, LABELS, UNLABELED, losses_of, prepared, random_model


def consistency(weak: naive.Rows, strong: naive.Rows, threshold: float) -> float:
    total = 0.0
    for row, other in zip(weak, strong, strict=True):
        q = naive.softmax(row)
        if max(q) >= threshold:
            total += naive.cross_entropy(other, q.index(max(q))) / len(weak)
    return total


def naive_total(rows: naive.Rows, threshold: float = 0.95, unlabeled_weight: float = 0.5) -> float:
    labeled = (
        sum(naive.cross_entropy(row, label) for row, label in zip(rows[:8], LABELS * 2, strict=True)) / 2 / LABELED
    )
    unlabeled, debiasing = consistency(rows[8:14], rows[14:20], threshold), consistency(rows[:4], rows[4:8], threshold)
    return labeled + unlabeled_weight * (unlabeled - debiasing)


@pytest.mark.parametrize("scale", [0.1, 3.0, 1000.0])
@pytest.mark.parametrize("given", [{}, {"threshold": 0.5}, {"unlabeled_weight": 2.0}])
def test_loss_equals_an_independent_computation(given: dict[str, Any], scale: float) -> None:
    model = random_model(scale)
    losses = losses_of(prepared("defixmatch", **given), model)
    assert losses.total.item() == pytest.approx(naive_total(model.logits.tolist(), **given), rel=1e-9)


def test_the_unlabeled_loss_costs_nothing_if_all_images_are_labeled() -> None:
    model = random_model(3.0)
    model.logits.data[8:12], model.logits.data[14:18] = model.logits.data[:4], model.logits.data[4:8]
    model.logits.data[12:14], model.logits.data[18:20] = model.logits.data[:2], model.logits.data[4:6]
    # Labeled images 0 and 1 occur twice among the unlabeled ones, so only their shares differ.
    parts = losses_of(prepared("defixmatch", threshold=0.1), model).parts
    costs = [parts["unlabeled_ce"].item() * UNLABELED, parts["debiasing_ce"].item() * LABELED]
    q = [naive.softmax(row) for row in model.logits[:2].tolist()]
    twice = sum(naive.cross_entropy(model.logits[4 + i].tolist(), q[i].index(max(q[i]))) for i in range(2))
    assert costs[0] - costs[1] == pytest.approx(twice)


def test_targets_are_constants() -> None:
    model = random_model(3.0)
    losses_of(prepared("defixmatch"), model).total.backward()
    assert model.logits.grad is not None
    assert model.logits.grad[8:14].abs().sum() == 0
    assert model.logits.grad[14:20].abs().sum() > 0
