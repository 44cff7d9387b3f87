"""Distances, similarities and sums over pairs, with analytic gradients.

Shapes do not depend on values: rows that do not count have the weight 0, so that no device has to report a number.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

__all__ = [
    "Pairs",
    "distances",
    "make_pairs",
    "margin_function",
    "mean_over_pairs",
    "norms",
    "of_anchors",
    "with_gradient",
    "zero",
]


@dataclass(frozen=True)
class Pairs:
    """The pairs (anchor, row) of a ranking loss.

    Attributes
    ----------
    same : Tensor
        (k, n) mask of the pairs with the same label, including each anchor with itself.
    kept : Tensor
        (n,) mask of the rows C.
    anchors : Tensor or None
        Positions (k,) of the anchors; None if each row is one, k = n.
    """

    same: Tensor
    kept: Tensor
    anchors: Tensor | None

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


def make_pairs(labels: Tensor, mask: Tensor | None, anchors: Tensor | None) -> Pairs:
    """The pairs of labels (n,); by default C has all rows, and each of them is an anchor."""
    kept = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask
    return Pairs(of_anchors(labels, anchors)[:, None] == labels, kept, anchors)


def of_anchors(rows: Tensor, anchors: Tensor | None) -> Tensor:
    """The anchors among the rows (n, …)."""
    return rows if anchors is None else rows[anchors]


def number_of_pairs(labels: Tensor, kept: Tensor) -> Tensor:
    """The number of pairs of two different rows of C with the same label, without a matrix of all pairs."""
    ordered, order = labels.sort()
    below = F.pad(kept[order].cumsum(0), (1, 0))  # how many of the first rows are in C
    first, last = torch.searchsorted(ordered, labels), torch.searchsorted(ordered, labels, right=True)
    return ((below[last] - below[first] - 1) * kept).sum()


def distances(rows: Tensor, anchors: Tensor | None, squared: bool) -> Tensor:
    """(k, n) Euclidean distances, computed from differences, so exact for close rows; the gradient at 0 is 0."""
    if anchors is None:
        distance: Tensor = _Distances.apply(rows)  # type: ignore[no-untyped-call]
    else:
        distance = torch.cdist(rows[anchors], rows, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square() if squared else distance


def norms(differences: Tensor, squared: bool) -> Tensor:
    """The (squared) Euclidean norm of each row; the gradient at 0 is 0."""
    return differences.square().sum(1) if squared else torch.linalg.vector_norm(differences, dim=1)


def margin_function(gap: Tensor, soft_margin: bool) -> Tensor:
    """f, applied to the gap of a triplet: softplus (soft margin) or hinge."""
    return F.softplus(gap) if soft_margin else F.relu(gap)


def zero(rows: Tensor) -> Tensor:
    """0 with a gradient of 0, so that backward works for a batch without pairs."""
    return (rows * 0).sum()


def mean_over_pairs(similarity: Tensor, labels: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Eq. (7) for a (k, n) matrix of similarities s/T, and its gradient."""
    count = number_of_pairs(labels, pairs.kept).clamp(min=1)
    # A finite substitute for -inf: a row without negatives then has ln Σ ≈ -1e37, its pairs cost 0, nothing is NaN.
    negatives = similarity.masked_fill(pairs.same | ~pairs.kept, torch.finfo(similarity.dtype).min / 8)
    positive = pairs.fill_itself((pairs.same & pairs.kept).to(similarity.dtype), 0)
    positive.mul_((pairs.kept_anchors.to(positive.dtype) / count)[:, None])
    share = negatives.softmax(1)  # e^(s_an/T) / Σ, at least 1/n where it is largest
    log_sum = (negatives.amax(1) - share.amax(1).log())[:, None] if similarity.numel() else negatives
    # -ln(e^s / (e^s + Σ)) = softplus(ln Σ - s), and its derivative with respect to ln Σ is the logistic function.
    gap = log_sum - similarity
    cost = F.softplus(gap).mul_(positive).sum()
    pull = gap.sigmoid_().mul_(positive)
    return cost, share.mul_(pull.sum(1, keepdim=True)).sub_(pull)


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
