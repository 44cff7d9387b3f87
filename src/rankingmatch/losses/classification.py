"""Losses that compare predictions with labels or with target distributions."""

import torch
from torch import Tensor
from torch.nn import functional as F


def masked_cross_entropy(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Eq. (3): (1/n) Σ_i m_i H(label_i, softmax(logits_i)), with booleans or weights m (n,).

    The divisor is n, not the number of rows with m_i = 1.
    """
    cost = F.cross_entropy(logits, labels, reduction="none")
    return (cost * mask).sum() / max(len(labels), 1)


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with target distributions t: (1/n) Σ_i H(t_i, softmax(logits_i))."""
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
