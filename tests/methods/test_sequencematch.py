"""SequenceMatch against loops written from its authors' definition."""

from typing import Any

import naive
import naive_methods
import pytest
from lookup import CLASSES, LABELED, LABELS, UNLABELED, Lookup, lookup_batch, losses_of, prepared, random_model

# The unlabeled images of each step; image 1 occurs twice.
DRAWN = [[0, 1, 2, 3, 4, 5], [5, 1, 1, 3, 2, 0], [0, 1, 2, 3, 4, 5], [2, 0, 1, 5, 3, 4]]


def naive_losses(
    models: list[Lookup], threshold: float = 0.95, sharpening: float = 0.5, unlabeled_weight: float = 1.0
) -> list[float]:
    learned: list[int | None] = [None] * UNLABELED
    losses = []
    for model, images in zip(models, DRAWN, strict=True):
        rows = model.logits.tolist()
        views = [rows[4:10], rows[10:16], rows[16:22]]
        most = max(*(learned.count(c) for c in range(CLASSES)), learned.count(None))
        beta = [learned.count(c) / most for c in range(CLASSES)]
        total = 0.0
        for i, image in enumerate(images):
            q = naive.softmax(views[0][i])
            label = q.index(max(q))
            if max(q) >= threshold * beta[label] / (2 - beta[label]):
                total += naive.cross_entropy(views[2][i], label) / UNLABELED
            if max(q) >= threshold:
                learned[image] = label
            for milder, other in ((0, 1), (1, 2), (0, 2)):
                target = naive.softmax(views[milder][i])
                if max(target) >= threshold:
                    total += naive_methods.kl(naive.sharpened(target, sharpening), views[other][i]) / UNLABELED
        labeled = sum(naive.cross_entropy(rows[i], label) for i, label in enumerate(LABELS)) / LABELED
        losses.append(labeled + unlabeled_weight * total)
    return losses


@pytest.mark.parametrize("scale", [0.1, 2.0, 1000.0])
@pytest.mark.parametrize("given", [{}, {"threshold": 0.6}, {"sharpening": 0.9}, {"unlabeled_weight": 0.3}])
def test_loss_equals_an_independent_computation(given: dict[str, Any], scale: float) -> None:
    models = [random_model(scale, seed) for seed in range(4)]
    method = prepared("sequencematch", **given)
    batches = [lookup_batch(method, rows) for rows in DRAWN]
    totals = [losses_of(method, model, step, batches[step]).total.item() for step, model in enumerate(models)]
    assert totals == pytest.approx(naive_losses(models, **given), rel=1e-9)


def test_targets_are_constants() -> None:
    model = random_model(3.0)
    losses_of(prepared("sequencematch"), model).total.backward()
    assert model.logits.grad is not None
    assert model.logits.grad[4:10].abs().sum() == 0
    assert model.logits.grad[10:16].abs().sum() > 0
    assert model.logits.grad[16:22].abs().sum() > 0
