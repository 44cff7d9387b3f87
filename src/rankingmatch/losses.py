"""The losses of the paper and of related methods, as pure functions of tensors.

A loss is a scalar with a gradient; `kl_divergence` and `entropy` have one value for each row (n,).

Notes
-----
The functions share these parameters:

- `logits`: logits (n, classes); the ranking losses also take other vectors, `rows` (n, width).
- `labels`, `targets`: integers (n,), and probabilities (n, classes).
- `mask`: booleans (n,), the rows that count; of a ranking loss, the rows C that are ranked, by default all.
- `margin`, `soft_margin`: m, and whether f is softplus; otherwise it is the hinge max(0, ·).
- `temperature`: T of the contrastive loss.
- `threshold`: the probability of the label above which a row is left out.
- `l2_normalize`: whether to L2-normalize the rows first.
- `squared`: whether d is the squared Euclidean distance; otherwise it is the Euclidean distance.
- `anchors`: positions (k,) of some rows: only the terms of the sum that have them as anchors, so that parts add up.

In the equations of the ranking losses, a, p and n are rows of C: an anchor, a row with its label, and a row with
another label. Tensors of pairs are (k, n), for k anchors and n rows. They are computed in at least float32, and have
finite gradients everywhere: identical rows, a single class, a single row and an empty batch included. BatchAll and
Contrastive compute value and gradient together, which takes half as long as autograd at n = 448; so they have no second
derivative. Except for BatchAll, shapes do not depend on values: rows that do not count have the weight 0, so that no
device has to report a number.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from rankingmatch.core.devices import full_precision
from rankingmatch.core.distributed import own_rows, shared, summed, world_size

__all__ = [
    "batch_all_triplet",
    "batch_hard_triplet",
    "batch_mean_triplet",
    "brier",
    "contrastive",
    "entropy",
    "kl_divergence",
    "l2_normalized",
    "masked_brier",
    "masked_cross_entropy",
    "soft_cross_entropy",
    "tsa_cross_entropy",
]

Similarity = Literal["cosine", "dot"]


def __dir__() -> list[str]:
    return __all__


# --- predictions and their labels or target distributions ------------------------------------------------------


def masked_cross_entropy(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Eq. (3): (1/n) Σ_i m_i H(label_i, softmax(logits_i)), with booleans or weights m (n,).

    The divisor is n, not the number of rows with m_i = 1.
    """
    cost = F.cross_entropy(logits, labels, reduction="none")
    return (cost * mask).sum() / max(len(labels), 1)


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with target distributions t: (1/n) Σ_i H(t_i, softmax(logits_i)); a row with t_i = 0 costs 0."""
    return -(targets * logits.log_softmax(1)).sum(1).mean()


def brier(logits: Tensor, targets: Tensor) -> Tensor:
    """Squared error of the probabilities: the mean over rows and classes of (softmax(logits) - t)²."""
    return (logits.softmax(1) - targets).square().mean()


def masked_brier(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Squared error of the probabilities of some rows: Σ_i m_i · mean_c (softmax(logits_i)_c - t_ic)² / Σ_i m_i.

    The mask m has booleans (n,). The loss is 0 if no row is left.
    """
    return ((logits.softmax(1) - targets).square().mean(1) * mask).sum() / mask.sum().clamp(min=1)


def tsa_cross_entropy(logits: Tensor, labels: Tensor, threshold: float, targets: Tensor | None = None) -> Tensor:
    """Training signal annealing: the mean cross-entropy of the rows that are not yet predicted too confidently.

    Σ_i 1(p_i ≤ threshold) H(t_i, softmax(logits_i)) / Σ_i 1(p_i ≤ threshold), where p_i is the predicted probability of
    label i; 0 if no row is left. The targets t are the labels by default.
    """
    own = F.cross_entropy(logits, labels, reduction="none")
    kept = (-own.detach()).exp() <= threshold
    cost = own if targets is None else -(targets * logits.log_softmax(1)).sum(1)
    return (cost * kept).sum() / kept.sum().clamp(min=1)


def kl_divergence(logits: Tensor, targets: Tensor) -> Tensor:
    """KL(t ‖ softmax(logits)) of each row (n,): Σ_c t_c (ln t_c - ln softmax(logits)_c), with 0 ln 0 = 0."""
    return (torch.xlogy(targets, targets) - targets * logits.log_softmax(1)).sum(1)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of each row (n,): -Σ_c p_c ln p_c with p = softmax(logits)."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


# --- ranking ---------------------------------------------------------------------------------------------------


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

    Memory is O(n²).
    """
    # As a tensor of n³: f(m + d[:, :, None] - d[:, None, :])[triplets].mean(). In blocks, with its gradient:
    # L = 1/V Σ_a Σ_p Σ_n f(m + d_ap - d_an), over V triplets: those of all rows of C, also of those that are no anchors
    # g_apn = f'(m + d_ap - d_an) / V, with f'(x) = e^x / (1 + e^x) for f(x) = ln(1 + e^x), 1(x > 0) for the hinge
    # ∂L/∂d_ap = Σ_n g_apn
    # ∂L/∂d_an = -Σ_p g_apn
    positions = torch.arange(len(labels)) if anchors is None else anchors.cpu()
    # The triplets of each class have a shape of their own, so labels and mask are read on the CPU: other devices wait.
    kept, classes = torch.ones(len(labels), dtype=torch.bool) if mask is None else mask.cpu(), labels.cpu()

    def value_and_gradient(distance: Tensor) -> tuple[Tensor, Tensor]:
        total, gradient, count = distance.new_zeros(()), torch.zeros_like(distance), 0
        # e^(m + d_ap - d_an) is a product of two factors, n² exponentials instead of n³, unless one could overflow.
        factored = soft_margin and bool(distance.numel() and distance.max() + margin < 80)
        for label in classes[kept].unique():
            mine = (classes == label) & kept
            own, inside, outside = (
                group.nonzero().squeeze(1).to(distance.device) for group in (mine[positions], mine, kept & ~mine)
            )
            if len(inside) < 2 or len(outside) == 0:
                continue
            count += len(inside) * (len(inside) - 1) * len(outside)
            # As many anchors at a time as fit into a block of k·n triplets (anchor, positive, negative).
            for block in own.split(max(1, distance.numel() // (len(inside) * len(outside)))):
                itself = inside == positions.to(distance.device)[block][:, None]
                pull = (distance[block][:, inside] + margin).masked_fill_(itself, -torch.inf)[:, :, None]
                push = distance[block][:, outside][:, None, :]
                if factored:
                    odds = pull.exp() * push.neg().exp()
                    total += odds.log1p().sum()
                    slope = odds.div_(odds + 1)
                else:
                    gap = pull - push
                    total += _margin_function(gap, soft_margin).sum()
                    slope = gap.sigmoid_() if soft_margin else (gap > 0).to(gap.dtype)
                gradient[block[:, None], inside] = slope.sum(2)
                gradient[block[:, None], outside] = -slope.sum(1)
        return total / max(count, 1), gradient.div_(max(count, 1))

    return _analytic(_distances(_ranked(logits, labels, l2_normalize), anchors, squared), value_and_gradient, torch.mul)


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
    rows = _ranked(logits, labels, l2_normalize)
    if len(rows) == 0:
        return rows.sum()
    same, kept, kept_anchors, count = _pairs(labels, mask, anchors)
    # f(m + d[same].max(1) - d[~same].min(1)), where the matrix only selects rows: 2n distances have gradients, not n².
    distance = _distances(rows.detach(), anchors, squared=False)
    nearest, nearest_row = distance.masked_fill(same | ~kept, torch.inf).min(1)
    distance.masked_fill_(~(same & kept), -torch.inf)
    furthest, furthest_row = _fill_itself(distance, anchors, -torch.inf if true_triplets else 0.0).max(1)
    pull, push = (
        difference.square().sum(1) if squared else torch.linalg.vector_norm(difference, dim=1)
        for difference in (_of(rows, anchors) - rows[furthest_row], _of(rows, anchors) - rows[nearest_row])
    )
    valid = (furthest >= 0) & (nearest < torch.inf) & kept_anchors
    return (_margin_function(margin + pull - push, soft_margin) * valid).sum() / count


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
    distance = _distances(_ranked(logits, labels, l2_normalize), anchors, squared)
    same, kept, kept_anchors, count = _pairs(labels, mask, anchors)
    # f(m + (d * same).sum(1) / n - (d * ~same).sum(1) / n), where both sums are one, Σ_b w_ab d_ab over all rows b:
    #     w_ab =  1/|C|  if b is a positive of a; b = a changes nothing, because d_aa = 0
    #     w_ab = -1/|C|  if b is a negative of a
    #     w_ab =  0      if b is not in C
    share = kept.to(distance.dtype) / count
    weight = torch.where(same, share, -share)
    if true_mean:
        alike = same.to(distance.dtype)
        positives = (alike * kept).sum(1, keepdim=True)
        weight = (alike / (positives - 1).clamp(min=1) - (1 - alike) / (count - positives).clamp(min=1)) * kept
    cost = _margin_function(margin + (weight * distance).sum(1), soft_margin)
    return (cost * kept_anchors).sum() / count


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
    similarity : {"cosine", "dot"}
        s: the cosine similarity, as in the SimCLR paper to which Eq. (7) refers, or the dot product. For L2-normalized
        rows they are the same; without normalization the dot product has no bound.
    """
    # As matrices: softplus(S[:, None] - s/T)[pairs].mean(), where S_a = ln Σ_n e^(s_an/T). With its gradient:
    # L = 1/V Σ_a Σ_p softplus(S_a - s_ap/T), over V pairs of rows of C
    # g_ap = σ(S_a - s_ap/T) / V
    # ∂L/∂(s_ap/T) = -g_ap
    # ∂L/∂(s_an/T) = e^(s_an/T - S_a) Σ_p g_ap
    same, kept, kept_anchors, _ = _pairs(labels, mask, anchors)
    # V, without a matrix of all pairs: for each row of C, the others of its label, which are next to it if sorted.
    ordered, order = labels.sort()
    below = F.pad(kept[order].cumsum(0), (1, 0))  # how many of the first rows are in C
    first, last = torch.searchsorted(ordered, labels), torch.searchsorted(ordered, labels, right=True)
    count = ((below[last] - below[first] - 1) * kept).sum()

    def value_and_gradient(scaled: Tensor) -> tuple[Tensor, Tensor]:
        # A finite substitute for -inf: a row without negatives then has S_a ≈ -1e37, its pairs cost 0, nothing is NaN.
        negatives = scaled.masked_fill(same | ~kept, torch.finfo(scaled.dtype).min / 8)
        positive = _fill_itself((same & kept).to(scaled.dtype), anchors, 0)
        positive.mul_((kept_anchors.to(positive.dtype) / count.clamp(min=1))[:, None])
        share = negatives.softmax(1)  # e^(s_an/T - S_a), at least 1/n where it is largest
        log_sum = (negatives.amax(1) - share.amax(1).log())[:, None] if scaled.numel() else negatives
        gap = log_sum - scaled
        value = F.softplus(gap).mul_(positive).sum()
        pull = gap.sigmoid_().mul_(positive)
        return value, share.mul_(pull.sum(1, keepdim=True)).sub_(pull)

    # The cosine is the dot product of normalized rows; it does not change if they are normalized already.
    rows = _ranked(logits, labels, l2_normalize or similarity == "cosine")
    with full_precision(rows.device):
        scaled = _of(rows, anchors) @ (rows / temperature).T
    return _analytic(scaled, value_and_gradient, torch.mul)


def _margin_function(gap: Tensor, soft_margin: bool) -> Tensor:
    """f: softplus (soft margin) or hinge."""
    return F.softplus(gap) if soft_margin else F.relu(gap)


# --- rows, pairs, distances ----------------------------------------------------------------------------------


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


def _pairs(labels: Tensor, mask: Tensor | None, anchors: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pairs with the same label (k, n), each row with itself, too; the rows (n,) and anchors (k,) in C; |C| or 1."""
    kept = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask
    return _of(labels, anchors)[:, None] == labels, kept, _of(kept, anchors), kept.sum().clamp(min=1)


def _of(rows: Tensor, anchors: Tensor | None) -> Tensor:
    """The anchors among the rows (n, …)."""
    return rows if anchors is None else rows[anchors]


def _fill_itself(matrix: Tensor, anchors: Tensor | None, value: float) -> Tensor:
    """Set the entries of each anchor with itself in a (k, n) matrix, in place."""
    return matrix.fill_diagonal_(value) if anchors is None else matrix.scatter_(1, anchors[:, None], value)


def _distances(rows: Tensor, anchors: Tensor | None, squared: bool) -> Tensor:
    """(k, n) Euclidean distances, computed from differences, so exact for close rows; the gradient at 0 is 0."""
    exact = partial(torch.cdist, compute_mode="donot_use_mm_for_euclid_dist")
    if anchors is not None:
        distance = exact(rows[anchors], rows)
    else:
        # With itself, the matrix is symmetric, so one backward call is enough for both arguments.
        distance = _analytic(
            rows,
            lambda x: (both := exact(x, x), x, both),
            lambda upstream, x, both: torch.ops.aten._cdist_backward(upstream + upstream.T, x, x, 2.0, both),
        )
    return distance.square() if squared else distance


class _Analytic(torch.autograd.Function):
    """A function of x: `compute` gives its value and what `derivative` needs besides the gradient of the value."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, compute: Callable[[Tensor], tuple[Tensor, ...]], derivative: Callable[..., Tensor]
    ) -> Tensor:
        value, *needed = compute(x)
        ctx.derivative = derivative
        ctx.save_for_backward(*needed)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        return ctx.derivative(upstream[0], *ctx.saved_tensors), None, None


_analytic: Callable[..., Tensor] = _Analytic.apply


def over_processes(loss: Callable[..., Tensor], rows: Tensor, labels: Tensor, **options: Any) -> Tensor:
    """A ranking loss of rows (n, width) and labels (n,) that are the same on all processes that train a run.

    With p processes, each computes n/p of the n rows of the matrix, those of its own images as anchors, and the parts
    are summed. Value and gradient are those of the whole loss, on every process.
    """
    if world_size() == 1 or len(rows) < world_size():
        return loss(rows, labels, **options)
    anchors = own_rows(torch.arange(len(labels), device=labels.device))
    return summed(loss(shared(rows), labels, anchors=anchors, **options))
