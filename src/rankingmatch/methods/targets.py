"""The targets of unlabeled images: pseudo-labels, sharpened and aligned distributions."""

import torch
from torch import Tensor

from rankingmatch.methods.protocol import PseudoLabels

__all__ = [
    "align_distribution",
    "histogram",
    "last_occurrence",
    "most_confident",
    "pseudo_label",
    "sharpen",
    "update_average",
]


def pseudo_label(logits: Tensor, threshold: float | Tensor) -> PseudoLabels:
    """Take the most probable class as label, confident if its probability is at least the threshold τ.

    Parameters
    ----------
    logits : Tensor
        Logits (n, classes).
    threshold : float or Tensor
        One threshold, or one for each class (classes,).

    Returns
    -------
    PseudoLabels
        Labels (n,) and which of them are confident (n,).
    """
    probability, label = logits.softmax(1).max(1)
    return PseudoLabels(label, probability >= (threshold[label] if isinstance(threshold, Tensor) else threshold))


def most_confident(probabilities: Tensor, dropped: float) -> Tensor:
    """Select all rows but the least confident ones.

    Parameters
    ----------
    probabilities : Tensor
        Probabilities (n, classes).
    dropped : float
        The fraction of rows to drop: the ⌊dropped · n⌋ whose largest probability is smallest.

    Returns
    -------
    Tensor
        Booleans (n,).
    """
    rank = probabilities.amax(1).argsort(stable=True).argsort()
    return rank >= int(dropped * len(probabilities))


def align_distribution(probabilities: Tensor, wanted: Tensor, seen: Tensor) -> Tensor:
    """Distribution alignment: p · wanted / seen, normalized to sum 1.

    Parameters
    ----------
    probabilities : Tensor
        Probabilities p (n, classes).
    wanted : Tensor
        The distribution of the labels (classes,).
    seen : Tensor
        The mean prediction of the model (classes,).

    Returns
    -------
    Tensor
        Probabilities (n, classes).
    """
    aligned = probabilities * (wanted / seen.clamp(min=1e-6))
    return aligned / aligned.sum(1, keepdim=True).clamp(min=torch.finfo(aligned.dtype).tiny)


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """Sharpen distributions: p^(1/T) / Σ p^(1/T).

    Parameters
    ----------
    probabilities : Tensor
        Probabilities p (n, classes).
    temperature : float
        T: below 1 sharpens, above 1 smooths.

    Returns
    -------
    Tensor
        Probabilities (n, classes).
    """
    # A softmax of logarithms neither underflows nor overflows; ln 0 = -∞ gives 0 again.
    return (probabilities.log() / temperature).softmax(1)


def histogram(labels: Tensor, classes: int, weights: Tensor | None = None) -> Tensor:
    """Count how often each class occurs.

    Parameters
    ----------
    labels : Tensor
        Labels (n,).
    classes : int
        The number of classes.
    weights : Tensor, optional
        Weights (n,) to sum instead of counting.

    Returns
    -------
    Tensor
        Counts or sums (classes,).
    """
    one_hot = labels[:, None] == torch.arange(classes, device=labels.device)
    return (one_hot if weights is None else one_hot * weights[:, None]).sum(0)


def last_occurrence(values: Tensor) -> Tensor:
    """Find the last entry that has the same value as each entry.

    ``memory[rows] = new[last_occurrence(rows)]`` stores the last of the rows that occur several times, in whatever
    order a device writes them.

    Parameters
    ----------
    values : Tensor
        Integers (n,).

    Returns
    -------
    Tensor
        Positions (n,).
    """
    ordered, order = values.sort(stable=True)
    return order[torch.searchsorted(ordered, values, right=True) - 1]


def update_average(average: Tensor, value: Tensor, decay: float) -> None:
    """Update a moving average in place: average ← decay · average + (1 - decay) · value.

    Parameters
    ----------
    average : Tensor
        The moving average, of any shape.
    value : Tensor
        The new value, of the same shape.
    decay : float
        The weight of the old average.
    """
    average.lerp_(value.to(average.dtype), 1 - decay)
