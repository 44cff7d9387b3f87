"""Sums over all triplets, with analytic gradients.

The triplets of each class have a shape of their own, so labels and mask are read on the CPU: another device has to wait
for that.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from rankingmatch.losses.pairwise import Pairs, margin_function

__all__ = ["mean_over_triplets"]


def mean_over_triplets(
    distance: Tensor, labels: Tensor, pairs: Pairs, margin: float, soft_margin: bool
) -> tuple[Tensor, Tensor]:
    """Σ f(m + D_ap - D_an) / V over the triplets of a (k, n) distance matrix, and its gradient.

    V is the number of triplets of all anchors, also of those without a row in the matrix.
    """
    total, gradient, count = distance.new_zeros(()), torch.zeros_like(distance), 0
    # e^(m + D_ap - D_an) is computed as a product of two factors unless one of them could overflow.
    factored = soft_margin and bool(distance.numel() and distance.max() + margin < 80)
    positions = torch.arange(len(labels), device=labels.device) if pairs.anchors is None else pairs.anchors
    for parts in _classes(labels.cpu(), pairs.kept.cpu(), positions.cpu()):
        own, inside, outside = (part.to(distance.device) for part in parts)
        count += len(inside) * (len(inside) - 1) * len(outside)
        # As many anchors at a time as fit into a block of k·n triplets.
        for anchors in own.split(max(1, distance.numel() // (len(inside) * len(outside)))):
            # (anchors, positives), -inf for the anchor itself; (anchors, negatives).
            itself = inside == positions[anchors][:, None]
            pull = (distance[anchors][:, inside] + margin).masked_fill_(itself, -torch.inf)
            cost, triplet_gradient = _sum_over_triplets(pull, distance[anchors][:, outside], soft_margin, factored)
            total += cost
            gradient[anchors[:, None], inside] = triplet_gradient.sum(2)
            gradient[anchors[:, None], outside] = -triplet_gradient.sum(1)
    return total / max(count, 1), gradient.div_(max(count, 1))


def _classes(labels: Tensor, kept: Tensor, positions: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For each label with triplets: the rows of the matrix that have it, and the rows of C with and without it."""
    for label in labels[kept].unique():
        mine = (labels == label) & kept
        inside, outside = mine.nonzero().squeeze(1), (kept & ~mine).nonzero().squeeze(1)
        if len(inside) > 1 and len(outside) > 0:
            yield mine[positions].nonzero().squeeze(1), inside, outside


def _sum_over_triplets(pull: Tensor, push: Tensor, soft_margin: bool, factored: bool) -> tuple[Tensor, Tensor]:
    """Σ f(pull_ap - push_an), and f' for each (anchor, positive, negative)."""
    if factored:
        # softplus(g) = ln(1 + e^g) and its derivative e^g / (1 + e^g), without an exponential for each triplet.
        odds = pull.exp()[:, :, None] * push.neg().exp()[:, None, :]
        cost = odds.log1p().sum()
        return cost, odds.div_(odds + 1)
    gap = pull[:, :, None] - push[:, None, :]
    cost = margin_function(gap, soft_margin).sum()
    # f' is the logistic function for softplus, the step function for the hinge.
    return cost, gap.sigmoid_() if soft_margin else (gap > 0).to(pull.dtype)
