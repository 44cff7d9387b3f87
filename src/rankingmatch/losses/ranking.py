"""The ranking losses of the paper, as functions of logits and labels.

They are computed in at least float32, and have finite gradients everywhere: identical rows, a single class, a single
row and an empty batch included.
"""

from typing import Literal

import torch
from torch import Tensor

from rankingmatch.core.devices import full_precision
from rankingmatch.losses.pairwise import (
    distances,
    make_pairs,
    margin_function,
    mean_over_pairs,
    norms,
    of_anchors,
    with_gradient,
    zero,
)
from rankingmatch.losses.triplets import mean_over_triplets

__all__ = [
    "Similarity",
    "batch_all_triplet",
    "batch_hard_triplet",
    "batch_mean_triplet",
    "contrastive",
    "l2_normalized",
]

Similarity = Literal["cosine", "dot"]


def batch_all_triplet(
    logits: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.5,
    soft_margin: bool = True,
    l2_normalize: bool = True,
    squared: bool = False,
    mask: Tensor | None = None,
    anchors: Tensor | None = None,
) -> Tensor:
    """BatchAll triplet loss, Eq. (4): the mean of f(m + d_ap - d_an) over all triplets with y_a = y_p ≠ y_n and a ≠ p.

    Memory is O(n²): triplets are visited class by class in blocks of anchors, never as an n×n×n tensor. The gradient is
    analytic and computed together with the loss, so there is no second derivative.

    Parameters
    ----------
    logits : Tensor
        Logits, or other vectors to rank (n, classes).
    labels : Tensor
        Labels (n,).
    margin : float
        m.
    soft_margin : bool
        Whether f is softplus; otherwise it is the hinge max(0, ·).
    l2_normalize : bool
        Whether to L2-normalize the rows first.
    squared : bool
        Whether d is the squared Euclidean distance; otherwise it is the Euclidean distance.
    mask : Tensor, optional
        Booleans (n,): the rows C that are ranked; by default all.
    anchors : Tensor, optional
        Positions (k,) of some rows: only the terms of the sum that have them as anchors, so that parts add up.

    Returns
    -------
    Tensor
        The loss, a scalar.
    """
    rows, pairs = _ranking_rows(logits, labels, l2_normalize), make_pairs(labels, mask, anchors)
    distance = distances(rows, anchors, squared)
    mean = mean_over_triplets(distance.detach(), labels, pairs, margin, soft_margin)
    return with_gradient(distance, *mean) + zero(rows)


def batch_hard_triplet(
    logits: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.5,
    soft_margin: bool = True,
    l2_normalize: bool = True,
    squared: bool = False,
    true_triplets: bool = False,
    mask: Tensor | None = None,
    anchors: Tensor | None = None,
) -> Tensor:
    """BatchHard triplet loss, Eq. (5): the mean over anchors a of f(m + max_p d_ap - min_n d_an).

    Eq. (5) does not exclude the anchor from its positives: an anchor without another one has max_p d_ap = d_aa = 0. An
    anchor without a negative contributes 0 and still counts in the mean. If several rows are equally far, the first one
    has the gradient.

    Parameters
    ----------
    logits : Tensor
        Logits, or other vectors to rank (n, classes).
    labels : Tensor
        Labels (n,).
    margin : float
        m.
    soft_margin : bool
        Whether f is softplus; otherwise it is the hinge max(0, ·).
    l2_normalize : bool
        Whether to L2-normalize the rows first.
    squared : bool
        Whether d is the squared Euclidean distance; otherwise it is the Euclidean distance.
    true_triplets : bool
        Whether the positive must be another row: an anchor without one then contributes 0.
    mask : Tensor, optional
        Booleans (n,): the rows C that are ranked; by default all.
    anchors : Tensor, optional
        Positions (k,) of some rows: only the terms of the sum that have them as anchors, so that parts add up.

    Returns
    -------
    Tensor
        The loss, a scalar.
    """
    rows, pairs = _ranking_rows(logits, labels, l2_normalize), make_pairs(labels, mask, anchors)
    if len(pairs.same) == 0:
        return zero(rows)
    # The matrix only selects the rows; the gradient is that of their 2n distances instead of n².
    distance = distances(rows.detach(), anchors, squared=False)
    nearest, nearest_row = distance.masked_fill(pairs.same | ~pairs.kept, torch.inf).min(1)
    distance.masked_fill_(~(pairs.same & pairs.kept), -torch.inf)
    furthest, furthest_row = pairs.fill_itself(distance, -torch.inf if true_triplets else 0.0).max(1)
    valid = (furthest >= 0) & (nearest < torch.inf) & pairs.kept_anchors
    pull, push = (norms(of_anchors(rows, anchors) - rows[other], squared) for other in (furthest_row, nearest_row))
    return (margin_function(margin + pull - push, soft_margin) * valid).sum() / pairs.count


def batch_mean_triplet(
    logits: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.5,
    soft_margin: bool = True,
    l2_normalize: bool = True,
    squared: bool = False,
    true_mean: bool = False,
    mask: Tensor | None = None,
    anchors: Tensor | None = None,
) -> Tensor:
    """BatchMean triplet loss, Eq. (6): the mean over anchors a of f(m + Σ_p d_ap / |C| - Σ_n d_an / |C|).

    |C| = n is the number of rows; an empty sum is 0.

    Parameters
    ----------
    logits : Tensor
        Logits, or other vectors to rank (n, classes).
    labels : Tensor
        Labels (n,).
    margin : float
        m.
    soft_margin : bool
        Whether f is softplus; otherwise it is the hinge max(0, ·).
    l2_normalize : bool
        Whether to L2-normalize the rows first.
    squared : bool
        Whether d is the squared Euclidean distance; otherwise it is the Euclidean distance.
    true_mean : bool
        Whether to divide each sum by its number of positives or negatives instead of |C|.
    mask : Tensor, optional
        Booleans (n,): the rows C that are ranked; by default all.
    anchors : Tensor, optional
        Positions (k,) of some rows: only the terms of the sum that have them as anchors, so that parts add up.

    Returns
    -------
    Tensor
        The loss, a scalar.
    """
    rows, pairs = _ranking_rows(logits, labels, l2_normalize), make_pairs(labels, mask, anchors)
    if len(pairs.same) == 0:
        return zero(rows)
    distance = distances(rows, anchors, squared)
    # Here a row is one of its own positives, which changes nothing: its distance to itself is 0.
    weight = pairs.same.to(distance.dtype)
    if true_mean:
        positives = (weight * pairs.kept).sum(1, keepdim=True)
        negatives = pairs.count - positives
        weight = weight / (positives - 1).clamp(min=1) - (1 - weight) / negatives.clamp(min=1)
        weight = weight * pairs.kept
    else:
        weight = weight.mul_(2).sub_(1).mul_(pairs.kept.to(weight.dtype) / pairs.count)
    cost = margin_function(margin + (weight * distance).sum(1), soft_margin)
    return (cost * pairs.kept_anchors).sum() / pairs.count


def contrastive(
    logits: Tensor,
    labels: Tensor,
    *,
    temperature: float = 0.2,
    l2_normalize: bool = True,
    similarity: Similarity = "cosine",
    mask: Tensor | None = None,
    anchors: Tensor | None = None,
) -> Tensor:
    """Contrastive loss, Eq. (7): the mean over pairs of -ln e^(s_ap/T) / (e^(s_ap/T) + Σ_n e^(s_an/T)).

    The pairs are a ≠ p with y_a = y_p; s is the similarity of two rows.

    Parameters
    ----------
    logits : Tensor
        Logits, or other vectors to rank (n, classes).
    labels : Tensor
        Labels (n,).
    temperature : float
        T.
    l2_normalize : bool
        Whether to L2-normalize the rows first.
    similarity : {"cosine", "dot"}
        s: the cosine similarity, as in the SimCLR paper to which Eq. (7) refers, or the dot product. For L2-normalized
        rows they are the same; without normalization the dot product has no bound.
    mask : Tensor, optional
        Booleans (n,): the rows C that are ranked; by default all.
    anchors : Tensor, optional
        Positions (k,) of some rows: only the terms of the sum that have them as anchors, so that parts add up.

    Returns
    -------
    Tensor
        The loss, a scalar.
    """
    # The cosine is the dot product of normalized rows; it does not change if they are normalized already.
    rows = _ranking_rows(logits, labels, l2_normalize or similarity == "cosine")
    with full_precision(rows.device):
        scaled = of_anchors(rows, anchors) @ (rows / temperature).T
    return with_gradient(scaled, *mean_over_pairs(scaled.detach(), labels, make_pairs(labels, mask, anchors)))


def _ranking_rows(logits: Tensor, labels: Tensor, l2_normalize: bool) -> Tensor:
    """The rows C to rank, in at least float32: autocast must not affect distances."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits must be (n, classes) and labels (n,), not {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    rows = logits if logits.dtype == torch.float64 else logits.float()
    return l2_normalized(rows) if l2_normalize else rows


def l2_normalized(rows: Tensor) -> Tensor:
    """Divide each row by its Euclidean norm.

    Parameters
    ----------
    rows : Tensor
        Rows (n, width).

    Returns
    -------
    Tensor
        Rows (n, width) of norm 1; a row of zeros stays zero and has no gradient.
    """
    # Scaling by the largest entry first avoids overflow and underflow of the squares.
    largest = rows.detach().abs().amax(1, keepdim=True) if rows.numel() else rows.new_zeros(len(rows), 1)
    scaled = rows / torch.where(largest > 0, largest, torch.inf)
    length = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / torch.where(length > 0, length, torch.inf)
