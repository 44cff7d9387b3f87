"""Dash against loops written from its paper."""

from typing import Any

import naive
import pytest
from lookup import LABELED, LABELS, UNLABELED, Lookup, losses_of, prepared, random_model

DEFAULTS: dict[str, Any] = {
    "unlabeled_weight": 1.0,
    "sharpening": 0.5,
    "loss_decay": 1.27,
    "least_loss": 0.05,
    "warm_up": 1 / 512,
}


def naive_losses(models: list[Lookup], **given: Any) -> list[float]:
    """The losses of 10 steps, in which the threshold falls every 10/1024 of training."""
    chosen = {**DEFAULTS, **given}
    first = int(chosen["warm_up"] * 10)
    initial, losses = 0.0, []
    for step, model in enumerate(models):
        rows = model.logits.tolist()
        labeled = sum(naive.cross_entropy(rows[i], label) for i, label in enumerate(LABELS)) / LABELED
        if step < first:
            losses.append(labeled)
            continue
        if step == first:
            initial = labeled
        falls = int((step - first) / 10 / (10 / 1024))
        rho = max(1.0001 * chosen["loss_decay"] ** (-falls) * initial, chosen["least_loss"])
        unlabeled = 0.0
        for i in range(UNLABELED):
            q = naive.softmax(rows[4 + i])
            target = naive.sharpened(q, chosen["sharpening"])
            if rho == chosen["least_loss"]:
                target = naive.one_hot(q.index(max(q)), 3)
            if naive.soft_cross_entropy(rows[4 + i], target) <= rho:
                unlabeled += naive.soft_cross_entropy(rows[10 + i], target) / UNLABELED
        losses.append(labeled + chosen["unlabeled_weight"] * unlabeled)
    return losses


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"loss_decay": 1.02},
        {"loss_decay": 1.02, "sharpening": 0.9},
        {"loss_decay": 1.02, "least_loss": 0.6},
        {"loss_decay": 1.02, "warm_up": 0.3},
        {"loss_decay": 1.02, "unlabeled_weight": 0.3},
    ],
)
def test_loss_equals_an_independent_computation(given: dict[str, Any], scale: float) -> None:
    models = [random_model(scale, seed) for seed in range(8)]
    method = prepared("dash", **given)
    losses = [losses_of(method, model, step) for step, model in enumerate(models)]
    assert [one.total.item() for one in losses] == pytest.approx(naive_losses(models, **given), rel=1e-9)
    if scale == 1.0 and given.get("loss_decay"):
        used = [int(one.pseudo_labels.confident.sum()) for one in losses if one.pseudo_labels]
        assert 0 < sum(used[3:]) < 5 * UNLABELED


def test_targets_are_constants() -> None:
    model = random_model(1.0)
    losses_of(prepared("dash"), model, step=0).total.backward()
    assert model.logits.grad is not None
    assert model.logits.grad[4:10].abs().sum() == 0
    assert model.logits.grad[10:16].abs().sum() > 0
