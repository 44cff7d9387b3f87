"""AdaMatch against loops written from its paper."""

import math
from typing import Any

import naive
import pytest
import torch
from lookup import CLASSES, LABELED, LABELS, UNLABELED, Lookup, context_of, losses_of, prepared, random_model
from torch import Tensor, nn

from rankingmatch.methods.adamatch import half_cosine
from rankingmatch.networks import Output

DEFAULTS: dict[str, Any] = {"relative_threshold": 0.9, "unlabeled_weight": 1.0}


def naive_losses(models: list[Lookup], first_step: int, **given: Any) -> list[float]:
    chosen = {**DEFAULTS, **given}
    recent_labeled, recent = ([[1 / CLASSES] * CLASSES for _ in range(128)] for _ in range(2))
    losses = []
    for step, model in enumerate(models, start=first_step):
        rows = model.logits.tolist()
        labeled_weak, labeled_strong = rows[:4], rows[4:8]
        weak, strong = [naive.softmax(row) for row in rows[8:14]], rows[14:20]
        confidences = [naive.softmax(row) for row in labeled_weak]
        recent_labeled[step % 128], recent[step % 128] = naive.mean_of(confidences), naive.mean_of(weak)
        of_labeled, of_unlabeled = naive.mean_of(recent_labeled), naive.mean_of(recent)
        cutoff = chosen["relative_threshold"] * sum(max(q) for q in confidences) / LABELED
        unlabeled = 0.0
        for q, row in zip(weak, strong, strict=True):
            aligned = [value * a / b for value, a, b in zip(q, of_labeled, of_unlabeled, strict=True)]
            aligned = [value / sum(aligned) for value in aligned]
            if max(aligned) >= cutoff:
                unlabeled += naive.soft_cross_entropy(row, aligned) / UNLABELED
        labeled = 0.0
        for view in (labeled_weak, labeled_strong):
            labeled += sum(naive.cross_entropy(row, label) for row, label in zip(view, LABELS, strict=True)) / LABELED
        weight = 0.5 - math.cos(min(math.pi, 2 * math.pi * step / 10)) / 2
        losses.append(labeled + chosen["unlabeled_weight"] * weight * unlabeled)
    return losses


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("given", [{}, {"relative_threshold": 0.5}, {"unlabeled_weight": 0.3}])
def test_loss_equals_an_independent_computation(given: dict[str, Any], scale: float) -> None:
    # The batch after the first 128 replaces the first one, at step 1.
    models = [random_model(scale, seed) for seed in range(130)]
    method = prepared("adamatch", **given)
    totals = [losses_of(method, model, step).total.item() for step, model in enumerate(models, start=1)]
    assert totals == pytest.approx(naive_losses(models, 1, **given), rel=1e-9)


def test_the_unlabeled_weight_rises_over_the_first_half() -> None:
    weights = [half_cosine(step, 8) for step in range(9)]
    assert weights[:5] == pytest.approx([0.0, 0.5 - math.sqrt(0.125), 0.5, 0.5 + math.sqrt(0.125), 1.0])
    assert weights[5:] == [1.0] * 4


def test_images_below_the_relative_threshold_are_not_used() -> None:
    method = prepared("adamatch")
    pseudo = losses_of(method, random_model(3.0)).pseudo_labels
    assert pseudo is not None
    assert 0 < int(pseudo.confident.sum()) < UNLABELED


class Centered(nn.Module):
    """Subtracts the mean of the batch, as BatchNorm does: outputs depend on the images passed together."""

    def __init__(self, model: Lookup) -> None:
        super().__init__()
        self.model, self.norm = model, nn.BatchNorm1d(CLASSES, affine=False).double()

    def forward(self, images: Tensor) -> Output:
        logits = self.norm(self.model(images).logits)
        return Output(logits, logits)


def test_labeled_logits_are_random_points_between_the_two_passes() -> None:
    model = Centered(random_model(1.0))
    method = prepared("adamatch", unlabeled_weight=0.0)
    total = losses_of(method, model).total.item()
    updates = model.norm.num_batches_tracked
    assert updates is not None
    assert updates.item() == 1  # the pass of the labeled images alone does not count
    rows = model.model.logits
    with torch.no_grad():
        alone = nn.functional.batch_norm(rows[:8], None, None, training=True)
        together = nn.functional.batch_norm(rows[:20], None, None, training=True)[:8]
        point = torch.rand(8, CLASSES, generator=context_of(2).generator)
        logits = (together + (alone - together) * point).tolist()
    expected = sum(naive.cross_entropy(row, label) for row, label in zip(logits, LABELS * 2, strict=True)) / LABELED
    assert total == pytest.approx(expected, rel=1e-6)


def test_targets_are_constants() -> None:
    model = random_model(3.0)
    losses_of(prepared("adamatch"), model).total.backward()
    assert model.logits.grad is not None
    moved = model.logits.grad.abs().sum(1)
    assert (moved[:8] > 0).all()
    assert moved[8:14].sum() == 0
    assert moved[14:20].sum() > 0
