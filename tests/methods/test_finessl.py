"""FineSSL against loops written from its paper."""

from typing import Any

import naive
import pytest
import torch
from lookup import CLASSES, LABELED, LABELS, UNLABELED, Lookup, lookup_batch, losses_of, prepared, random_model

from rankingmatch.methods.finessl import FineSSL, class_margins, with_margins

DEFAULTS: dict[str, Any] = {"threshold": 0.7, "unlabeled_weight": 3.0, "class_margin": 8.0, "label_smoothing": 0.5}
# The unlabeled images of each step; image 1 occurs twice.
DRAWN = [[0, 1, 2, 3, 4, 5], [5, 1, 1, 3, 2, 0], [0, 1, 2, 3, 4, 5], [2, 0, 1, 5, 3, 4]]


def balanced_margin_softmax(row: list[float], label: int, margins: list[float]) -> float:
    moved = [v if c == label else v + margins[label] for c, v in enumerate(row)]
    return naive.cross_entropy(moved, label)


def naive_losses(method: FineSSL, models: list[Lookup], **given: Any) -> list[float]:
    chosen = {**DEFAULTS, **given}
    learned: dict[int, int] = {}
    losses = []
    for model, images in zip(models, DRAWN, strict=True):
        rows = model.logits.tolist()
        auxiliary = (model.features @ method.auxiliary_head.weight.T + method.auxiliary_head.bias).tolist()
        counts = [list(learned.values()).count(c) for c in range(CLASSES)]
        status = [count / max([*counts, 1]) for count in counts]
        spread = max(status) - min(status)
        margins = [chosen["class_margin"] * spread * (1 - s) / (1 + s) for s in status]
        total = 0.0
        for i, label in enumerate(LABELS):
            total += balanced_margin_softmax(rows[i], label, margins) / LABELED
            total += naive.cross_entropy(auxiliary[i], label) / LABELED
        costs = []
        for i, image in enumerate(images):
            q, weight = naive.softmax(rows[4 + i]), max(naive.softmax(auxiliary[4 + i]))
            label = q.index(max(q))
            for strong in (10 + i, 16 + i):
                cost = weight * balanced_margin_softmax(rows[strong], label, margins)
                total += chosen["unlabeled_weight"] * cost / (2 * UNLABELED)
                if max(q) >= chosen["threshold"]:
                    s = chosen["label_smoothing"]
                    target = [1 - s if c == label else s / (CLASSES - 1) for c in range(CLASSES)]
                    costs.append(naive.soft_cross_entropy(auxiliary[strong], target))
            if max(q) >= chosen["threshold"]:
                learned[image] = label
        losses.append(total + (sum(costs) / len(costs) if costs else 0.0))
    return losses


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
@pytest.mark.parametrize(
    "given", [{}, {"threshold": 0.5}, {"unlabeled_weight": 0.3}, {"class_margin": 2.0}, {"label_smoothing": 0.1}]
)
def test_loss_equals_an_independent_computation(given: dict[str, Any], scale: float) -> None:
    models = [random_model(scale, seed) for seed in range(4)]
    method = prepared("finessl", **given)
    assert isinstance(method, FineSSL)
    batches = [lookup_batch(method, rows) for rows in DRAWN]
    totals = [losses_of(method, model, step, batches[step]).total.item() for step, model in enumerate(models)]
    assert totals == pytest.approx(naive_losses(method, models, **given), rel=1e-6)


def test_classes_learned_less_have_a_larger_margin() -> None:
    # 2 images of class 0, 1 of class 1, none of class 2: σ = 1, 1/2, 0.
    margins = class_margins(torch.tensor([2, 1, 0]), 6.0)
    assert margins.tolist() == pytest.approx([0.0, 2.0, 6.0])
    assert class_margins(torch.zeros(3, dtype=torch.long), 6.0).tolist() == [0.0] * 3
    moved = with_margins(torch.zeros(2, 3), torch.tensor([1, 0]), margins)
    assert moved.tolist() == [[2.0, 0.0, 2.0], [0.0, 0.0, 0.0]]


def test_the_auxiliary_head_trains_no_features() -> None:
    model, method = random_model(1.0), prepared("finessl")
    losses_of(method, model).total.backward()
    assert model.features.grad is None
    assert model.logits.grad is not None
    assert model.logits.grad[4:10].abs().sum() == 0
    assert (model.logits.grad[10:22].abs().sum(1) > 0).all()
    assert all(parameter.grad is not None for parameter in method.parameters())
