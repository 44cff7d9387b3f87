"""The ranking losses of the paper, as functions of logits and labels. The package says what their parameters are.

They are computed in at least float32, and have finite gradients everywhere: identical rows, a single class, a single
row and an empty batch included. In the equations, a, p and n are rows of C: an anchor, a row with its label, and a row
with another label.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from rankingmatch.core.devices import full_precision
from rankingmatch.core.distributed import own_rows, shared, summed, world_size
from rankingmatch.losses.pairwise import (
    Pairs,
    distances,
    margin_function,
    mean_over_pairs,
    mean_over_triplets,
    of_anchors,
    with_gradient,
    zero,
)

__all__ = [
    "Similarity",
    "batch_all_triplet",
    "batch_hard_triplet",
    "batch_mean_triplet",
    "contrastive",
    "l2_normalized",
    "over_processes",
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
    """
    rows, pairs = _ranked(logits, labels, l2_normalize), Pairs.of(labels, mask, anchors)
    distance = distances(rows, anchors, squared)
    value, gradient = mean_over_triplets(distance.detach(), labels, pairs, margin, soft_margin)
    return with_gradient(distance, value, gradient) + zero(rows)


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
    true_triplets : bool
        Whether the positive must be another row: an anchor without one then contributes 0.
    """
    rows, pairs = _ranked(logits, labels, l2_normalize), Pairs.of(labels, mask, anchors)
    if len(pairs.same) == 0:
        return zero(rows)
    # The matrix only selects the rows; the gradient is that of their 2n distances instead of n².
    distance = distances(rows.detach(), anchors, squared=False)
    nearest, nearest_row = distance.masked_fill(pairs.same | ~pairs.kept, torch.inf).min(1)
    distance.masked_fill_(~(pairs.same & pairs.kept), -torch.inf)
    furthest, furthest_row = pairs.fill_itself(distance, -torch.inf if true_triplets else 0.0).max(1)
    pull = _norms(of_anchors(rows, anchors) - rows[furthest_row], squared)
    push = _norms(of_anchors(rows, anchors) - rows[nearest_row], squared)
    valid = (furthest >= 0) & (nearest < torch.inf) & pairs.kept_anchors
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
    true_mean : bool
        Whether to divide each sum by its number of positives or negatives instead of |C|.
    """
    rows, pairs = _ranked(logits, labels, l2_normalize), Pairs.of(labels, mask, anchors)
    if len(pairs.same) == 0:
        return zero(rows)
    distance = distances(rows, anchors, squared)
    # Both sums are one, Σ_b w_ab d_ab over all rows b:
    #     w_ab =  1/|C|  if b is a positive of a; b = a changes nothing, because d_aa = 0
    #     w_ab = -1/|C|  if b is a negative of a
    #     w_ab =  0      if b is not in C
    share = pairs.kept.to(distance.dtype) / pairs.count
    weight = torch.where(pairs.same, share, -share)
    if true_mean:
        same = pairs.same.to(distance.dtype)
        positives = (same * pairs.kept).sum(1, keepdim=True)
        negatives = pairs.count - positives
        weight = (same / (positives - 1).clamp(min=1) - (1 - same) / negatives.clamp(min=1)) * pairs.kept
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

    The pairs are a ≠ p with y_a = y_p; s is the similarity of two rows. The gradient is analytic and computed together
    with the loss, so there is no second derivative.

    Parameters
    ----------
    similarity : {"cosine", "dot"}
        s: the cosine similarity, as in the SimCLR paper to which Eq. (7) refers, or the dot product. For L2-normalized
        rows they are the same; without normalization the dot product has no bound.
    """
    # The cosine is the dot product of normalized rows; it does not change if they are normalized already.
    rows = _ranked(logits, labels, l2_normalize or similarity == "cosine")
    with full_precision(rows.device):
        scaled = of_anchors(rows, anchors) @ (rows / temperature).T
    value, gradient = mean_over_pairs(scaled.detach(), labels, Pairs.of(labels, mask, anchors))
    return with_gradient(scaled, value, gradient)


def _ranked(logits: Tensor, labels: Tensor, l2_normalize: bool) -> Tensor:
    """The rows to rank, in at least float32: autocast must not affect distances."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits must be (n, classes) and labels (n,), not {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    rows = logits if logits.dtype == torch.float64 else logits.float()
    return l2_normalized(rows) if l2_normalize else rows


def l2_normalized(rows: Tensor) -> Tensor:
    """Divide each row (n, width) by its Euclidean norm; a row of zeros stays zero and has no gradient."""
    # Scaling by the largest entry first avoids overflow and underflow of the squares.
    largest = rows.detach().abs().amax(1, keepdim=True) if rows.numel() else rows.new_zeros(len(rows), 1)
    scaled = rows / torch.where(largest > 0, largest, torch.inf)
    length = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / torch.where(length > 0, length, torch.inf)


def _norms(differences: Tensor, squared: bool) -> Tensor:
    """The (squared) Euclidean norm of each row; the gradient at 0 is 0."""
    return differences.square().sum(1) if squared else torch.linalg.vector_norm(differences, dim=1)


def over_processes(loss: Callable[..., Tensor], rows: Tensor, labels: Tensor, **options: Any) -> Tensor:
    """A ranking loss of rows (n, width) and labels (n,) that are the same on all processes that train a run.

    With p processes, each computes n/p of the n rows of the matrix, those of its own images as anchors, and the parts
    are summed. Value and gradient are those of the whole loss, on every process.
    """
    if world_size() == 1 or len(rows) < world_size():
        return loss(rows, labels, **options)
    anchors = own_rows(torch.arange(len(labels), device=labels.device))
    return summed(loss(shared(rows), labels, anchors=anchors, **options))
