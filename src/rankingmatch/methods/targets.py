"""What unlabeled images are trained towards."""

import torch
from torch import Tensor

from rankingmatch.methods.protocol import PseudoLabels


def pseudo_label(logits: Tensor, threshold: float) -> PseudoLabels:
    """argmax of softmax(q), confident where its probability is at least τ."""
    probability, label = logits.softmax(1).max(1)
    return PseudoLabels(label, probability >= threshold)


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """p^(1/T), normalised: nearer to one-hot the lower T is."""
    # Dividing by the largest first changes nothing but keeps the power from vanishing for every class at once.
    power = (probabilities / probabilities.amax(1, keepdim=True)) ** (1 / temperature)
    return power / power.sum(1, keepdim=True)


def histogram(labels: Tensor, classes: int, weights: Tensor | None = None) -> Tensor:
    """How often each class occurs among the labels, or the sum of its rows' weights: (classes,)."""
    one_hot = labels[:, None] == torch.arange(classes, device=labels.device)
    return (one_hot if weights is None else one_hot * weights[:, None]).sum(0)


def update_average(average: Tensor, value: Tensor, decay: float) -> None:
    """average ← decay · average + (1 - decay) · value, in place."""
    average.lerp_(value.to(average.dtype), 1 - decay)
