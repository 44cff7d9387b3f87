"""The ranking losses of the paper, as functions of logits and labels.

They are computed in at least float32, and have finite gradients everywhere: identical rows, a single class, a single
row and an empty batch included.
"""

import torch
from torch import Tensor

from rankingmatch.losses.pairwise import (
    distances,
    margin_function,
    mean_over_pairs,
    mean_over_triplets,
    norms,
    same_label,
    with_gradient,
    zero,
)

__all__ = ["batch_all_triplet", "batch_hard_triplet", "batch_mean_triplet", "contrastive", "l2_normalized"]


def batch_all_triplet(
    logits: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.5,
    soft_margin: bool = True,
    l2_normalize: bool = True,
    squared: bool = False,
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

    Returns
    -------
    Tensor
        The loss, a scalar.
    """
    rows = _ranking_rows(logits, labels, l2_normalize)
    distance = distances(rows, squared)
    return with_gradient(distance, *mean_over_triplets(distance.detach(), labels, margin, soft_margin)) + zero(rows)


def batch_hard_triplet(
    logits: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.5,
    soft_margin: bool = True,
    l2_normalize: bool = True,
    squared: bool = False,
) -> Tensor:
    """BatchHard triplet loss, Eq. (5): the mean over anchors a of f(m + max_p d_ap - min_n d_an).

    An anchor without a positive or without a negative contributes 0 and still counts in the mean. If several rows are
    equally far, the first one has the gradient.

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

    Returns
    -------
    Tensor
        The loss, a scalar.
    """
    rows = _ranking_rows(logits, labels, l2_normalize)
    if len(rows) == 0:
        return zero(rows)
    # The matrix only selects the rows; the gradient is that of their 2n distances instead of n².
    distance, same = distances(rows.detach(), squared=False), same_label(labels)
    nearest, nearest_row = distance.masked_fill(same, torch.inf).min(1)
    furthest, furthest_row = distance.masked_fill_(~same, -torch.inf).fill_diagonal_(-torch.inf).max(1)
    valid = (furthest >= 0) & (nearest < torch.inf)
    pull, push = (norms(rows - rows[other], squared) for other in (furthest_row, nearest_row))
    return (margin_function(margin + pull - push, soft_margin) * valid).mean()


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

    Returns
    -------
    Tensor
        The loss, a scalar.
    """
    rows = _ranking_rows(logits, labels, l2_normalize)
    if len(rows) == 0:
        return zero(rows)
    distance = distances(rows, squared)
    # Here a row is one of its own positives, which changes nothing: its distance to itself is 0.
    weight = same_label(labels).to(distance.dtype)
    if true_mean:
        positives = weight.sum(1, keepdim=True)
        negatives = len(rows) - positives
        weight = weight / (positives - 1).clamp(min=1) - (1 - weight) / negatives.clamp(min=1)
    else:
        weight = weight.mul_(2).sub_(1).div_(len(rows))
    return margin_function(margin + (weight * distance).sum(1), soft_margin).mean()


def contrastive(logits: Tensor, labels: Tensor, *, temperature: float = 0.2, l2_normalize: bool = True) -> Tensor:
    """Contrastive loss, Eq. (7): the mean over pairs of -ln e^(s_ap/T) / (e^(s_ap/T) + Σ_n e^(s_an/T)).

    The pairs are a ≠ p with y_a = y_p; s is the dot product, which is the cosine similarity of L2-normalized rows.

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

    Returns
    -------
    Tensor
        The loss, a scalar.
    """
    rows = _ranking_rows(logits, labels, l2_normalize)
    with torch.autocast(rows.device.type, enabled=False):
        similarity = rows @ (rows / temperature).T
    return with_gradient(similarity, *mean_over_pairs(similarity.detach(), labels))


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
