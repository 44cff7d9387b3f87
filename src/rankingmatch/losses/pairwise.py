"""Distances, similarities and sums over pairs and triplets, with analytic gradients."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

__all__ = [
    "distances",
    "margin_function",
    "mean_over_pairs",
    "mean_over_triplets",
    "norms",
    "same_label",
    "with_gradient",
    "zero",
]


def distances(rows: Tensor, squared: bool) -> Tensor:
    """(n, n) Euclidean distances, computed from differences, so exact for close rows; the gradient at 0 is 0."""
    distance: Tensor = _Distances.apply(rows)  # type: ignore[no-untyped-call]
    return distance.square() if squared else distance


def norms(differences: Tensor, squared: bool) -> Tensor:
    """The (squared) Euclidean norm of each row; the gradient at 0 is 0."""
    return differences.square().sum(1) if squared else torch.linalg.vector_norm(differences, dim=1)


def same_label(labels: Tensor) -> Tensor:
    """(n, n) mask of the pairs with the same label, including each row with itself."""
    return labels[:, None] == labels[None, :]


def margin_function(gap: Tensor, soft_margin: bool) -> Tensor:
    """f, applied to the gap of a triplet: softplus (soft margin) or hinge."""
    return F.softplus(gap) if soft_margin else F.relu(gap)


def zero(rows: Tensor) -> Tensor:
    """0 with a gradient of 0, so that backward works for a batch without pairs."""
    return (rows * 0).sum()


def mean_over_pairs(similarity: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. (7) for a matrix of similarities s/T, and its gradient."""
    positive = same_label(labels).to(similarity.dtype)
    # A finite substitute for -inf: a row without negatives then has ln Σ ≈ -1e37, its pairs cost 0, nothing is NaN.
    negatives = similarity.add(positive, alpha=torch.finfo(similarity.dtype).min / 8)
    positive.fill_diagonal_(0)
    count = positive.sum().clamp(min=1)
    share = negatives.softmax(1)  # e^(s_an/T) / Σ, at least 1/n where it is largest
    log_sum = (negatives.amax(1) - share.amax(1).log())[:, None] if len(labels) else negatives
    # -ln(e^s / (e^s + Σ)) = softplus(ln Σ - s), and its derivative with respect to ln Σ is the logistic function.
    gap = log_sum - similarity
    cost = F.softplus(gap).mul_(positive).sum() / count
    pull = gap.sigmoid_().mul_(positive).div_(count)
    return cost, share.mul_(pull.sum(1, keepdim=True)).sub_(pull)


def mean_over_triplets(distance: Tensor, labels: Tensor, margin: float, soft_margin: bool) -> tuple[Tensor, Tensor]:
    """Σ f(m + D_ap - D_an) / V over the V triplets of a distance matrix, and its gradient."""
    total, gradient, count = distance.new_zeros(()), torch.zeros_like(distance), 0
    # e^(m + D_ap - D_an) is computed as a product of two factors unless one of them could overflow.
    factored = soft_margin and bool(distance.numel() and distance.max() + margin < 80)
    for label in labels.unique():
        inside, outside = (labels == label).nonzero().squeeze(1), (labels != label).nonzero().squeeze(1)
        if len(inside) == 1 or len(outside) == 0:
            continue
        count += len(inside) * (len(inside) - 1) * len(outside)
        # As many anchors at a time as fit into a block of n² triplets.
        anchors_at_once = max(1, distance.numel() // (len(inside) * len(outside)))
        for anchors in inside.split(anchors_at_once):
            # (anchors, positives), -inf for the anchor itself; (anchors, negatives).
            pull = (distance[anchors][:, inside] + margin).masked_fill_(inside == anchors[:, None], -torch.inf)
            cost, triplet_gradient = _sum_over_triplets(pull, distance[anchors][:, outside], soft_margin, factored)
            total += cost
            gradient[anchors[:, None], inside] = triplet_gradient.sum(2)
            gradient[anchors[:, None], outside] = -triplet_gradient.sum(1)
    return total / max(count, 1), gradient.div_(max(count, 1))


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
