"""What unlabeled images are trained towards."""

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


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """p^(1/T) / Σ p^(1/T) of each row."""
    # As a softmax of logarithms it has neither under- nor overflow; ln 0 = -∞ gives back 0.
    return (probabilities.log() / temperature).softmax(1)
