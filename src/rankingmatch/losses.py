"""The losses of the paper and of its kin as pure functions of (logits, labels).

Shapes: `logits` is (n, classes), `labels` is (n,) of integers, `targets` is (n, classes) of probabilities; a function
returns a scalar with a graph, or (n,) where it says "of each row".
Ranking losses are computed in at least float32 whatever comes in, and have finite gradients everywhere:
identical rows, a single class, a single row and an empty batch included.
"""

from typing import Any

import torch
from torch import Tensor
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
    loss: Tensor = _MeanOverTriplets.apply(_distances(rows, squared), labels, margin, soft_margin)  # type: ignore[no-untyped-call]
    return loss + _nothing(rows)


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

    An anchor without a positive or without a negative contributes 0 and still counts in the mean.
    """
    rows = _ranking_rows(logits, labels, l2_normalize)
    if len(rows) == 0:
        return _nothing(rows)
    distance = _distances(rows, squared)
    positive, negative = _pairs(labels)
    furthest = distance.masked_fill(~positive, -torch.inf).amax(1)
    nearest = distance.masked_fill(~negative, torch.inf).amin(1)
    valid = positive.any(1) & negative.any(1)
    # The invalid rows hold ±inf: replace them before f, so that neither value nor gradient meets them.
    gap = torch.where(valid, furthest, 0.0) - torch.where(valid, nearest, 0.0)
    return (_f(margin + gap, soft_margin) * valid).mean()


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
    positive, negative = (mask.to(distance.dtype) for mask in _pairs(labels))
    if true_mean:
        weight = positive / positive.sum(1, keepdim=True).clamp(min=1)
        weight = weight - negative / negative.sum(1, keepdim=True).clamp(min=1)
    else:
        weight = (positive - negative) / len(rows)
    return _f(margin + (weight * distance).sum(1), soft_margin).mean()


def contrastive(logits: Tensor, labels: Tensor, *, temperature: float = 0.2, l2_normalize: bool = True) -> Tensor:
    """Eq. (7): the mean over pairs a ≠ p, y_a = y_p of -ln e^(s_ap/T) / (e^(s_ap/T) + Σ_n e^(s_an/T)).

    s is the dot product: the cosine when rows are L2-normalised, the raw product otherwise.
    """
    rows = _ranking_rows(logits, labels, l2_normalize)
    positive, negative = _pairs(labels)
    with torch.autocast(rows.device.type, enabled=False):
        similarity = rows @ rows.T / temperature
    # A finite stand-in for -inf: a row without negatives then has log-sum ≈ -1e37, its pairs cost 0, and
    # no gradient is NaN.
    nowhere = torch.finfo(similarity.dtype).min / 8
    log_negatives = similarity.masked_fill(~negative, nowhere).logsumexp(1, keepdim=True)
    # -ln(e^s / (e^s + Σ)) = softplus(ln Σ - s)
    cost = F.softplus(log_negatives - similarity) * positive
    return cost.sum() / positive.sum().clamp(min=1)


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
    distance = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square() if squared else distance


def _pairs(labels: Tensor) -> tuple[Tensor, Tensor]:
    """(n, n) masks of positive pairs (same label, not the row itself) and negative pairs."""
    same = labels[:, None] == labels[None, :]
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return same & ~itself, ~same


def _f(gap: Tensor, soft_margin: bool) -> Tensor:
    """The function that forgives triplets already in order: softplus or hinge."""
    return F.softplus(gap) if soft_margin else F.relu(gap)


def _nothing(rows: Tensor) -> Tensor:
    """0 with a graph, so that backward works on a batch that has nothing to say."""
    return (rows * 0).sum()


class _MeanOverTriplets(torch.autograd.Function):
    """Σ f(m + D_ap - D_an) / V over the triplets of a distance matrix, with dL/dD found on the way."""

    @staticmethod
    def forward(ctx: Any, distance: Tensor, labels: Tensor, margin: float, soft_margin: bool) -> Tensor:
        total = distance.new_zeros(())
        slope = torch.zeros_like(distance)
        count = 0
        for label in labels.unique():
            inside = (labels == label).nonzero().squeeze(1)
            outside = (labels != label).nonzero().squeeze(1)
            others = len(inside) - 1
            if others == 0 or len(outside) == 0:
                continue
            count += len(inside) * others * len(outside)
            # As many anchors at a time as keep the block of triplets within n² entries.
            anchors_at_once = max(1, distance.numel() // (len(inside) * len(outside)))
            for anchors in inside.split(anchors_at_once):
                pull = distance[anchors][:, inside]  # (anchors, positives and the anchor itself)
                push = distance[anchors][:, outside]  # (anchors, negatives)
                gap = margin + pull[:, :, None] - push[:, None, :]
                itself = (inside[None, :] == anchors[:, None])[:, :, None]
                gap = gap.masked_fill_(itself, -torch.inf)
                total += _f(gap, soft_margin).sum()
                # f' is the logistic function for softplus, the step function for the hinge.
                gap = torch.sigmoid_(gap) if soft_margin else (gap > 0).to(distance.dtype)
                slope[anchors[:, None], inside] = gap.sum(2)
                slope[anchors[:, None], outside] = -gap.sum(1)
        ctx.save_for_backward(slope / max(count, 1))
        return total / max(count, 1)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        return slope * upstream[0], None, None, None
