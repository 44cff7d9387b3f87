"""The losses of the paper and of its kin as pure functions of (logits, labels).

Shapes: `logits` is (n, classes), `labels` is (n,) of integers, `targets` is (n, classes) of probabilities; a function
returns a scalar with a graph, or (n,) where it says "of each row".
Ranking losses are computed in at least float32 whatever comes in, and have finite gradients everywhere:
identical rows, a single class, a single row and an empty batch included.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def batch_all_triplet(
    logits: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.5,
    soft_margin: bool = True,
    l2_normalize: bool = True,
    squared: bool = False,
) -> Tensor:
    """Eq. (4): the mean of f(m + d_ap - d_an) over all triplets with y_a = y_p ≠ y_n and a ≠ p.

    Memory is O(n²): triplets are visited class by class in blocks of anchors, never as an n×n×n tensor.
    The gradient is analytic and computed together with the loss, so there is no second derivative.
    """
    rows = _ranking_rows(logits, labels, l2_normalize)
    distance = _distances(rows, squared)
    return _with_slope(distance, *_mean_over_triplets(distance.detach(), labels, margin, soft_margin)) + _nothing(rows)


def batch_hard_triplet(
    logits: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.5,
    soft_margin: bool = True,
    l2_normalize: bool = True,
    squared: bool = False,
) -> Tensor:
    """Eq. (5): the mean over anchors of f(m + furthest positive - nearest negative).

    An anchor without a positive or without a negative contributes 0 and still counts in the mean. Of several that are
    equally far the first counts.
    """
    rows = _ranking_rows(logits, labels, l2_normalize)
    if len(rows) == 0:
        return _nothing(rows)
    # The matrix only says which rows are meant: their distances, 2n instead of n², are what has a gradient.
    distance, same = _distances(rows.detach(), squared=False), _same(labels)
    nearest, place = distance.masked_fill(same, torch.inf).min(1)
    furthest, far_place = distance.masked_fill_(~same, -torch.inf).fill_diagonal_(-torch.inf).max(1)
    valid = (furthest >= 0) & (nearest < torch.inf)
    pull, push = (_length(rows - rows[other], squared) for other in (far_place, place))
    return (_f(margin + pull - push, soft_margin) * valid).mean()


def batch_mean_triplet(
    logits: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.5,
    soft_margin: bool = True,
    l2_normalize: bool = True,
    squared: bool = False,
    true_mean: bool = False,
) -> Tensor:
    """Eq. (6): the mean over anchors of f(m + Σ_p d_ap / |C| - Σ_n d_an / |C|); an empty sum is 0.

    `true_mean` divides each sum by its number of positives or negatives instead of |C|.
    """
    rows = _ranking_rows(logits, labels, l2_normalize)
    if len(rows) == 0:
        return _nothing(rows)
    distance = _distances(rows, squared)
    # A row counts among its own positives here: its distance to itself is 0.
    weight = _same(labels).to(distance.dtype)
    if true_mean:
        positives = weight.sum(1, keepdim=True)
        negatives = len(rows) - positives
        weight = weight / (positives - 1).clamp(min=1) - (1 - weight) / negatives.clamp(min=1)
    else:
        weight = weight.mul_(2).sub_(1).div_(len(rows))
    return _f(margin + (weight * distance).sum(1), soft_margin).mean()


def contrastive(logits: Tensor, labels: Tensor, *, temperature: float = 0.2, l2_normalize: bool = True) -> Tensor:
    """Eq. (7): the mean over pairs a ≠ p, y_a = y_p of -ln e^(s_ap/T) / (e^(s_ap/T) + Σ_n e^(s_an/T)).

    s is the dot product: the cosine when rows are L2-normalised, the raw product otherwise.
    """
    rows = _ranking_rows(logits, labels, l2_normalize)
    with torch.autocast(rows.device.type, enabled=False):
        similarity = rows @ (rows / temperature).T
    return _with_slope(similarity, *_mean_over_pairs(similarity.detach(), labels))


def masked_cross_entropy(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Eq. (3): (1/n) Σ 1(masked in) H(label, softmax(logits)). The divisor is n, not the number masked in."""
    cost = F.cross_entropy(logits, labels, reduction="none")
    return (cost * mask).sum() / max(len(labels), 1)


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """(1/n) Σ H(t, softmax(logits)) for targets (n, classes) that are distributions themselves."""
    return -(targets * logits.log_softmax(1)).sum(1).mean()


def brier(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over rows and classes of (softmax(logits) - t)², for targets (n, classes)."""
    return (logits.softmax(1) - targets).square().mean()


def masked_brier(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """`brier` with the rows masked out costing nothing. The divisor is n, not the number masked in."""
    return ((logits.softmax(1) - targets).square().mean(1) * mask).mean()


def tsa_cross_entropy(logits: Tensor, labels: Tensor, threshold: float, targets: Tensor | None = None) -> Tensor:
    """Training signal annealing: the mean cross-entropy of the rows whose label has a probability ≤ the threshold.

    The rows that are surer than that are left out; if all are, the loss is 0. The cross-entropy is that with the
    labels, or with (n, classes) targets where they are given.
    """
    own = F.cross_entropy(logits, labels, reduction="none")
    kept = (-own.detach()).exp() <= threshold
    cost = own if targets is None else -(targets * logits.log_softmax(1)).sum(1)
    return (cost * kept).sum() / kept.sum().clamp(min=1)


def kl_divergence(logits: Tensor, targets: Tensor) -> Tensor:
    """KL(targets ‖ softmax(logits)) of each row: Σ_c target_c (ln target_c - ln softmax(logits)_c), with 0 ln 0 = 0."""
    return (torch.xlogy(targets, targets) - targets * logits.log_softmax(1)).sum(1)


def entropy(logits: Tensor) -> Tensor:
    """-Σ_c p_c ln p_c of each row, p = softmax(logits)."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


def _ranking_rows(logits: Tensor, labels: Tensor, l2_normalize: bool) -> Tensor:
    """C, the rows to rank, in at least float32: autocast must not reach distances."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits must be (n, classes) and labels (n,), not {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    rows = logits if logits.dtype == torch.float64 else logits.float()
    return l2_normalized(rows) if l2_normalize else rows


def l2_normalized(rows: Tensor) -> Tensor:
    """Rows of Euclidean length 1; a zero row stays zero and gets no gradient."""
    # Scaling by the largest entry first keeps the squares of very large or small rows in range.
    largest = rows.detach().abs().amax(1, keepdim=True) if rows.numel() else rows.new_zeros(len(rows), 1)
    scaled = rows / torch.where(largest > 0, largest, torch.inf)
    length = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / torch.where(length > 0, length, torch.inf)


def _distances(rows: Tensor, squared: bool) -> Tensor:
    """(n, n) Euclidean distances from differences, exact for near rows; the root's gradient at 0 is 0."""
    distance: Tensor = _Distances.apply(rows)  # type: ignore[no-untyped-call]
    return distance.square() if squared else distance


def _length(differences: Tensor, squared: bool) -> Tensor:
    """The (squared) Euclidean length of each row; the root's gradient at 0 is 0."""
    return differences.square().sum(1) if squared else torch.linalg.vector_norm(differences, dim=1)


def _same(labels: Tensor) -> Tensor:
    """(n, n) mask of the pairs with the same label, each row with itself among them."""
    return labels[:, None] == labels[None, :]


def _f(gap: Tensor, soft_margin: bool) -> Tensor:
    """The function that forgives triplets already in order: softplus or hinge."""
    return F.softplus(gap) if soft_margin else F.relu(gap)


def _nothing(rows: Tensor) -> Tensor:
    """0 with a graph, so that backward works on a batch that has nothing to say."""
    return (rows * 0).sum()


def _mean_over_pairs(similarity: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. (7) for a matrix of similarities s/T, and its derivative by each of them."""
    positive = _same(labels).to(similarity.dtype)
    # A finite stand-in for -inf: a row without negatives then has ln Σ ≈ -1e37, its pairs cost 0, nothing is NaN.
    negatives = similarity.add(positive, alpha=torch.finfo(similarity.dtype).min / 8)
    positive.fill_diagonal_(0)
    count = positive.sum().clamp(min=1)
    share = negatives.softmax(1)  # e^(s_an/T) / Σ, at least 1/n where it is largest
    log_sum = (negatives.amax(1) - share.amax(1).log())[:, None] if len(labels) else negatives
    # -ln(e^s / (e^s + Σ)) = softplus(ln Σ - s), and its derivative by ln Σ is the logistic function.
    gap = log_sum - similarity
    cost = F.softplus(gap).mul_(positive).sum() / count
    pull = gap.sigmoid_().mul_(positive).div_(count)
    return cost, share.mul_(pull.sum(1, keepdim=True)).sub_(pull)


def _mean_over_triplets(distance: Tensor, labels: Tensor, margin: float, soft_margin: bool) -> tuple[Tensor, Tensor]:
    """Σ f(m + D_ap - D_an) / V over the triplets of a distance matrix, and its derivative by each distance."""
    total, slope, count = distance.new_zeros(()), torch.zeros_like(distance), 0
    # e^(m + D_ap - D_an) is a product of two factors, unless one of them is out of range.
    factored = soft_margin and bool(distance.numel() and distance.max() + margin < 80)
    for label in labels.unique():
        inside, outside = (labels == label).nonzero().squeeze(1), (labels != label).nonzero().squeeze(1)
        if len(inside) == 1 or len(outside) == 0:
            continue
        count += len(inside) * (len(inside) - 1) * len(outside)
        # As many anchors at a time as keep the block of triplets within n² entries.
        anchors_at_once = max(1, distance.numel() // (len(inside) * len(outside)))
        for anchors in inside.split(anchors_at_once):
            # (anchors, positives), -inf for the anchor itself; (anchors, negatives).
            pull = (distance[anchors][:, inside] + margin).masked_fill_(inside == anchors[:, None], -torch.inf)
            cost, triplet_slope = _triplets(pull, distance[anchors][:, outside], soft_margin, factored)
            total += cost
            slope[anchors[:, None], inside] = triplet_slope.sum(2)
            slope[anchors[:, None], outside] = -triplet_slope.sum(1)
    return total / max(count, 1), slope.div_(max(count, 1))


def _triplets(pull: Tensor, push: Tensor, soft_margin: bool, factored: bool) -> tuple[Tensor, Tensor]:
    """Σ f(pull_ap - push_an), and f' of each (anchor, positive, negative)."""
    if factored:
        # softplus(g) = ln(1 + e^g) and its derivative e^g / (1 + e^g), without an exponential for each triplet.
        odds = pull.exp()[:, :, None] * push.neg().exp()[:, None, :]
        cost = odds.log1p().sum()
        return cost, odds.div_(odds + 1)
    gap = pull[:, :, None] - push[:, None, :]
    cost = _f(gap, soft_margin).sum()
    # f' is the logistic function for softplus, the step function for the hinge.
    return cost, gap.sigmoid_() if soft_margin else (gap > 0).to(pull.dtype)


def _with_slope(matrix: Tensor, value: Tensor, slope: Tensor) -> Tensor:
    """A function of a matrix by its value and its derivative, which was found on the way."""
    result: Tensor = _WithSlope.apply(matrix, value, slope)  # type: ignore[no-untyped-call]
    return result


class _WithSlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return slope * upstream[0], None, None


class _Distances(torch.autograd.Function):
    """`cdist` of rows with themselves: the matrix is symmetric, so one backward pass does for both sides."""

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
