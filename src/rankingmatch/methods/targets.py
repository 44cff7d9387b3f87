"""What unlabeled images are trained towards."""

import torch
from torch import Tensor

from rankingmatch.methods.protocol import PseudoLabels


def pseudo_label(logits: Tensor, threshold: float) -> PseudoLabels:
    """argmax of softmax(q), confident where its probability is at least τ."""
    probability, label = logits.softmax(1).max(1)
    return PseudoLabels(label, probability >= threshold)


def most_confident(probabilities: Tensor, dropped: float) -> Tensor:
    """(n,) of bool: all rows but the ⌊dropped · n⌋ whose largest probability is the smallest."""
    rank = probabilities.amax(1).argsort(stable=True).argsort()
    return rank >= int(dropped * len(probabilities))


def align_distribution(probabilities: Tensor, wanted: Tensor, seen: Tensor) -> Tensor:
    """p · wanted / seen, divided by its sum, for each row; `wanted` and `seen` are distributions over the classes."""
    aligned = probabilities * (wanted / seen.clamp(min=1e-6))
    return aligned / aligned.sum(1, keepdim=True).clamp(min=torch.finfo(aligned.dtype).tiny)


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """p^(1/T) / Σ p^(1/T) of each row."""
    # As a softmax of logarithms it has neither under- nor overflow; ln 0 = -∞ gives back 0.
    return (probabilities.log() / temperature).softmax(1)


def histogram(labels: Tensor, classes: int, weights: Tensor | None = None) -> Tensor:
    """How often each class occurs among the labels, or the sum of its rows' weights: (classes,)."""
    one_hot = labels[:, None] == torch.arange(classes, device=labels.device)
    return (one_hot if weights is None else one_hot * weights[:, None]).sum(0)


def update_average(average: Tensor, value: Tensor, decay: float) -> None:
    """average ← decay · average + (1 - decay) · value, in place."""
    average.lerp_(value.to(average.dtype), 1 - decay)
