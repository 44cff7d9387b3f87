"""Labeled images pass the network twice in AdaMatch, and their logits are between those of the two passes."""

import naive
import pytest
import torch
from lookup import CLASSES, LABELED, LABELS, Lookup, losses_of, prepared, random_model
from torch import Tensor, nn

from rankingmatch.networks import Output


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
    total = losses_of(prepared("adamatch", unlabeled_weight=0.0), model).total.item()
    assert int(model.norm.num_batches_tracked or 0) == 1  # the pass of the labeled images alone does not count
    rows = model.model.logits
    with torch.no_grad():
        alone = nn.functional.batch_norm(rows[:8], None, None, training=True)
        together = nn.functional.batch_norm(rows[:20], None, None, training=True)[:8]
        point = torch.rand(8, CLASSES, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        logits = (together + (alone - together) * point).tolist()
    expected = sum(naive.cross_entropy(row, label) for row, label in zip(logits, LABELS * 2, strict=True)) / LABELED
    assert total == pytest.approx(expected, rel=1e-6)
