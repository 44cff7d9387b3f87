"""Distances, and sums over pairs and triplets of rows with analytic gradients.

Value and gradient are computed together: at n = 448, that takes about half as long as autograd. Shapes do not depend on
values, except for triplets: rows that do not count have the weight 0, so that no device has to report a number.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

__all__ = [
    "Pairs",
    "distances",
    "margin_function",
    "mean_over_pairs",
    "mean_over_triplets",
    "of_anchors",
    "with_gradient",
    "zero",
]


@dataclass(frozen=True)
class Pairs:
    """The pairs (anchor, row) of a ranking loss: `same` (k, n) has those with the same label, each with itself, too.

    `kept` (n,) is the mask of the rows C, `anchors` the positions (k,) of the anchors; None if each row is one.
    """

    same: Tensor
    kept: Tensor
    anchors: Tensor | None

    @classmethod
    def of(cls, labels: Tensor, mask: Tensor | None, anchors: Tensor | None) -> "Pairs":
        """The pairs of labels (n,)."""
        kept = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask
        return cls(of_anchors(labels, anchors)[:, None] == labels, kept, anchors)

    @property
    def count(self) -> Tensor:
        """|C|, at least 1."""
        return self.kept.sum().clamp(min=1)

    @property
    def kept_anchors(self) -> Tensor:
        """(k,) mask of the anchors that are in C."""
        return of_anchors(self.kept, self.anchors)

    def fill_itself(self, matrix: Tensor, value: float) -> Tensor:
        """Set the entries of each anchor with itself in a (k, n) matrix, in place."""
        if self.anchors is None:
            return matrix.fill_diagonal_(value)
        return matrix.scatter_(1, self.anchors[:, None], value)


def of_anchors(rows: Tensor, anchors: Tensor | None) -> Tensor:
    """The anchors among the rows (n, …)."""
    return rows if anchors is None else rows[anchors]


def distances(rows: Tensor, anchors: Tensor | None, squared: bool) -> Tensor:
    """(k, n) Euclidean distances, computed from differences, so exact for close rows; the gradient at 0 is 0."""
    if anchors is None:
        distance: Tensor = _Distances.apply(rows)  # type: ignore[no-untyped-call]
    else:
        distance = torch.cdist(rows[anchors], rows, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square() if squared else distance


def margin_function(gap: Tensor, soft_margin: bool) -> Tensor:
    """f, applied to the gap of a triplet: softplus (soft margin) or hinge."""
    return F.softplus(gap) if soft_margin else F.relu(gap)


def zero(rows: Tensor) -> Tensor:
    """0 with a gradient of 0, so that backward works for a batch without pairs."""
    return (rows * 0).sum()


def mean_over_pairs(similarity: Tensor, labels: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Eq. (7) for a (k, n) matrix of similarities s/T, and its gradient.

    L = 1/V Σ_a Σ_p -ln e^(s_ap/T) / (e^(s_ap/T) + Σ_n e^(s_an/T)) over V pairs
      = 1/V Σ_a Σ_p softplus(S_a - s_ap/T),  S_a = ln Σ_n e^(s_an/T).
    With g_ap = σ(S_a - s_ap/T) / V, the derivative by s_ap/T is -g_ap, and by s_an/T it is e^(s_an/T - S_a) Σ_p g_ap.
    """
    count = _number_of_pairs(labels, pairs.kept).clamp(min=1)
    # A finite substitute for -inf: a row without negatives then has S_a ≈ -1e37, its pairs cost 0, nothing is NaN.
    negatives = similarity.masked_fill(pairs.same | ~pairs.kept, torch.finfo(similarity.dtype).min / 8)
    positive = pairs.fill_itself((pairs.same & pairs.kept).to(similarity.dtype), 0)
    positive.mul_((pairs.kept_anchors.to(positive.dtype) / count)[:, None])
    share = negatives.softmax(1)  # e^(s_an/T - S_a), at least 1/n where it is largest
    log_sum = (negatives.amax(1) - share.amax(1).log())[:, None] if similarity.numel() else negatives
    gap = log_sum - similarity
    value = F.softplus(gap).mul_(positive).sum()
    pull = gap.sigmoid_().mul_(positive)
    return value, share.mul_(pull.sum(1, keepdim=True)).sub_(pull)


def _number_of_pairs(labels: Tensor, kept: Tensor) -> Tensor:
    """The number of pairs of two different rows of C with the same label, without a matrix of all pairs."""
    ordered, order = labels.sort()
    below = F.pad(kept[order].cumsum(0), (1, 0))  # how many of the first rows are in C
    first, last = torch.searchsorted(ordered, labels), torch.searchsorted(ordered, labels, right=True)
    return ((below[last] - below[first] - 1) * kept).sum()


def mean_over_triplets(
    distance: Tensor, labels: Tensor, pairs: Pairs, margin: float, soft_margin: bool
) -> tuple[Tensor, Tensor]:
    """Eq. (4) for a (k, n) matrix of distances d, and its gradient.

    L = 1/V Σ_a Σ_p Σ_n f(m + d_ap - d_an) over V triplets, those of anchors without a row in the matrix included.
    With g_apn = f'(m + d_ap - d_an) / V, the derivative by d_ap is Σ_n g_apn, and by d_an it is -Σ_p g_apn.
    The triplets of each class have a shape of their own, so labels and mask are read on the CPU: another device waits.
    """
    total, gradient, count = distance.new_zeros(()), torch.zeros_like(distance), 0
    # e^(m + d_ap - d_an) is computed as a product of two factors unless one of them could overflow.
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
            cost, slope = _sum_over_triplets(pull, distance[anchors][:, outside], soft_margin, factored)
            total += cost
            gradient[anchors[:, None], inside] = slope.sum(2)
            gradient[anchors[:, None], outside] = -slope.sum(1)
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


def with_gradient(matrix: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """A function of a matrix, given by its value and its gradient, which were computed together."""
    result: Tensor = _WithGradient.apply(matrix, value, gradient)  # type: ignore[no-untyped-call]
    return result


class _WithGradient(torch.autograd.Function):
    """Returns the given value in forward and uses the given gradient in backward."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[0], None, None


class _Distances(torch.autograd.Function):
    """`cdist` of rows with themselves: the matrix is symmetric, so one backward call is enough for both arguments."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        distance = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
        ctx.save_for_backward(rows, distance)
        return distance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        rows, distance = ctx.saved_tensors
        both: Tensor = upstream[0] + upstream[0].T
        gradient: Tensor = torch.ops.aten._cdist_backward(both, rows, rows, 2.0, distance)
        return gradient
