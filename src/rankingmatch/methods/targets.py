"""The targets of unlabeled images: pseudo-labels, sharpened and aligned distributions; and what they are made of."""

import torch
from torch import Tensor

from rankingmatch.core.schedule import statistics_momentum
from rankingmatch.methods.protocol import PseudoLabels

__all__ = [
    "align_distribution",
    "decay_at_length",
    "histogram",
    "last_occurrence",
    "most_confident",
    "pseudo_label",
    "safe_log",
    "sharpen",
    "update_average",
]


def pseudo_label(logits: Tensor, threshold: float | Tensor) -> PseudoLabels:
    """Take the most probable class of each row (n, classes), confident if its probability is at least the threshold τ.

    There is one threshold, or one for each class (classes,).
    """
    probability, label = logits.softmax(1).max(1)
    return PseudoLabels(label, probability >= (threshold[label] if isinstance(threshold, Tensor) else threshold))


def most_confident(probabilities: Tensor, dropped: float) -> Tensor:
    """Select (n,) all rows (n, classes) but the ⌊dropped · n⌋ whose largest probability is smallest."""
    rank = probabilities.amax(1).argsort(stable=True).argsort()
    return rank >= int(dropped * len(probabilities))


def align_distribution(probabilities: Tensor, wanted: Tensor, seen: Tensor) -> Tensor:
    """Distribution alignment: p · wanted / seen, each row (n, classes) normalized to sum 1.

    `wanted` is the distribution of the labels (classes,), `seen` the mean prediction of the model.
    """
    aligned = probabilities * (wanted / seen.clamp(min=1e-6))
    return aligned / aligned.sum(1, keepdim=True).clamp(min=torch.finfo(aligned.dtype).tiny)


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """Sharpen distributions (n, classes): p^(1/T) / Σ p^(1/T). A temperature T above 1 smooths them."""
    # A softmax of logarithms neither underflows nor overflows; ln 0 = -∞ gives 0 again.
    return (probabilities.log() / temperature).softmax(1)


def safe_log(probabilities: Tensor) -> Tensor:
    """ln p, finite where p = 0."""
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()


def histogram(labels: Tensor, classes: int, weights: Tensor | None = None) -> Tensor:
    """Count how often each class occurs among labels (n,), or sum the weights (n,) of its rows: (classes,)."""
    one_hot = labels[:, None] == torch.arange(classes, device=labels.device)
    return (one_hot if weights is None else one_hot * weights[:, None]).sum(0)


def last_occurrence(values: Tensor) -> Tensor:
    """Find the position (n,) of the last entry that has the same value as each entry of integers (n,).

    ``memory[rows] = new[last_occurrence(rows)]`` stores the last of the rows that occur several times, in whatever
    order a device writes them.
    """
    ordered, order = values.sort(stable=True)
    return order[torch.searchsorted(ordered, values, right=True) - 1]


def update_average(average: Tensor, value: Tensor, decay: float) -> None:
    """Update a moving average in place: average ← decay · average + (1 - decay) · value."""
    average.lerp_(value.to(average.dtype), 1 - decay)


def decay_at_length(decay: float | None, steps: int) -> float:
    """The decay that is given, or the one for a run of this length: 1 - the momentum of BatchNorm's statistics."""
    return 1 - statistics_momentum(steps) if decay is None else decay
