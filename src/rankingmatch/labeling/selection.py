"""Which picture to label next.

Pictures are chosen greedily, such that every picture has a chosen one that resembles it [1]: with a kernel k on unit
features, the next picture is the one with the largest ∑ w(y) max(k(x, y) − c(y), 0), where c(y) is the largest kernel
value of y with a picture that is labeled already. Before there is a model, w = 1. With a model, w is larger for
pictures that it is unsure about [2].

1. Bae et al., Generalized Coverage for More Robust Low-Budget Active Learning, 2024.
2. Bae et al., Uncertainty Herding: One Active Learning Method for All Label Budgets, 2025.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from rankingmatch.core.randomness import Purpose, numpy_generator
from rankingmatch.heads.smoothing import known_rows, unit_features

__all__ = [
    "AUDIT_EVERY",
    "NOT_SELECTABLE",
    "UNLABELED",
    "Choice",
    "Reason",
    "audit_numbers",
    "initial_order",
    "is_audit_turn",
    "next_pictures",
]

UNLABELED, NOT_SELECTABLE = -1, -2
AUDIT_EVERY = 5  # one of five pictures is for the audit
AUDIT_SHARE, AUDIT_MOST = 0.2, 1000  # of the folder, and pictures
SHARPNESS = 3.0  # β of the kernel
DOUBT = 4  # power of the uncertainty
EXAMINED = 4000  # pictures that coverage is computed with; a random part of a larger folder


class Reason(Enum):
    """Why a picture is shown next; the values are for people."""

    TYPICAL = "typical of the folder"
    UNSURE = "the model is unsure"
    RARE = "few labels of this class yet"
    AUDIT = "random check"


@dataclass(frozen=True)
class Choice:
    """A picture to label next.

    Attributes
    ----------
    number : int
        The index of the picture.
    reason : Reason
        Why it was chosen.
    """

    number: int
    reason: Reason


def audit_numbers(n: int, seed: int) -> np.ndarray:
    """Draw the pictures that are reserved for the audit, in the order in which they are shown.

    They are a simple random sample of all pictures, whatever is selected for training, if they are never selected for
    training: pass them to `next_pictures` as not selectable from the beginning, do not offer them for acceptance, and
    leave out (without replacement by another one) those that had a label before.

    Parameters
    ----------
    n : int
        The number of pictures in the folder.
    seed : int
        The seed of the draw.

    Returns
    -------
    numpy.ndarray
        Different picture numbers, int64: a fifth of the folder, at most 1000.
    """
    count = min(AUDIT_MOST, int(AUDIT_SHARE * n))
    return numpy_generator(seed, Purpose.AUDIT).permutation(n)[:count].astype(np.int64)


def is_audit_turn(k: int) -> bool:
    """Whether the picture shown as number k (from 0) is one of the audit: every fifth is."""
    return k % AUDIT_EVERY == AUDIT_EVERY - 1


def initial_order(features: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Order pictures such that the first ones cover the folder.

    Parameters
    ----------
    features : numpy.ndarray
        Features of shape (n, d), best from `smooth_features`.
    count : int
        The number of pictures wanted.
    seed : int
        The seed; it matters only for folders with more than 4000 pictures.

    Returns
    -------
    numpy.ndarray
        Different picture numbers of shape (min(count, n),), int64.
    """
    choices = next_pictures(features, np.full(len(features), UNLABELED), None, count, seed)
    return np.array([choice.number for choice in choices], np.int64)


def next_pictures(
    features: np.ndarray, labels: np.ndarray, probabilities: np.ndarray | None, count: int, seed: int
) -> list[Choice]:
    """Choose the pictures to label next, most useful first.

    Parameters
    ----------
    features : numpy.ndarray
        Features of all pictures, of shape (n, d), best from `smooth_features`; a row of zeros is a picture whose
        features are not known yet, which is not chosen.
    labels : numpy.ndarray
        Labels of shape (n,): a class, −1 without a label, or −2 for pictures that must not be chosen (of the audit,
        skipped, of no class).
    probabilities : numpy.ndarray, optional
        The model's probabilities of shape (n, classes); None without a model.
    count : int
        The number of pictures wanted.
    seed : int
        The seed; the choice depends on nothing else but the arguments.

    Returns
    -------
    list of Choice
        Different pictures; fewer than `count` if fewer are selectable.
    """
    labels = np.asarray(labels)
    known = np.flatnonzero(known_rows(features))
    selectable = known[labels[known] == UNLABELED]
    count = min(count, len(selectable))
    if count <= 0:
        return []
    generator = numpy_generator(seed, Purpose.SELECTION, int((labels >= 0).sum()))
    candidates = _sample(selectable, max(EXAMINED, count), generator)
    reference = _sample(known, EXAMINED, generator)
    mean = np.asarray(features[reference], np.float32).mean(0)
    pool = unit_features(features[candidates], mean)
    target = unit_features(features[reference], mean)
    covered = _coverage(target, unit_features(features[labels >= 0], mean))
    weights = _weights(None if probabilities is None else probabilities[reference])
    chosen = candidates[_greedy(_kernel(pool, target), covered, weights, count)]
    reasons = _reasons(chosen, labels, probabilities)
    return [Choice(int(number), reason) for number, reason in zip(chosen, reasons, strict=True)]


def _sample(numbers: np.ndarray, most: int, generator: np.random.Generator) -> np.ndarray:
    """All numbers, or a random part if there are too many."""
    return numbers if len(numbers) <= most else np.sort(generator.choice(numbers, most, replace=False))


def _kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The Gaussian kernel exp(−β‖x − y‖² / 2) = exp(β(xᵀy − 1)) of unit vectors, (n, m)."""
    similarity = left @ right.T
    similarity -= 1
    similarity *= SHARPNESS
    return np.asarray(np.exp(similarity, out=similarity))


def _coverage(target: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """For each target, its largest kernel value with a chosen picture; zero without one."""
    covered = np.zeros(len(target), np.float32)
    for start in range(0, len(chosen), EXAMINED):
        covered = np.maximum(covered, _kernel(target, chosen[start : start + EXAMINED]).max(1))
    return covered


def _weights(probabilities: np.ndarray | None) -> np.ndarray | float:
    """The weight w(y) of each reference picture; the power makes up for a head that is less sure than it is right."""
    return 1.0 if probabilities is None else _uncertainty(probabilities) ** DOUBT


def _uncertainty(probabilities: np.ndarray) -> np.ndarray:
    """One minus the difference of the two largest probabilities."""
    largest = np.sort(probabilities, axis=1)[:, -2:]
    return np.asarray(1 - (largest[:, -1] - largest[:, 0]))


def _greedy(kernel: np.ndarray, covered: np.ndarray, weights: np.ndarray | float, count: int) -> np.ndarray:
    """Rows of a kernel (candidates, targets), each with the largest gain of weighted coverage after those before it.

    Gains only shrink as more is covered, so a row whose renewed gain is still the largest needs no comparison.
    """
    gains = np.array([float((weights * np.maximum(row - covered, 0)).sum()) for row in kernel])
    chosen = []
    for _ in range(count):
        while True:
            best = int(np.argmax(gains))
            renewed = float((weights * np.maximum(kernel[best] - covered, 0)).sum())
            if renewed >= gains[best]:
                break
            gains[best] = renewed
        chosen.append(best)
        covered = np.maximum(covered, kernel[best])
        gains[best] = -1
    return np.array(chosen, np.int64)


def _reasons(chosen: np.ndarray, labels: np.ndarray, probabilities: np.ndarray | None) -> list[Reason]:
    """The reason for each chosen picture."""
    if probabilities is None:
        return [Reason.TYPICAL] * len(chosen)
    counts = np.bincount(labels[labels >= 0], minlength=probabilities.shape[1])
    rare = counts[probabilities[chosen].argmax(1)] <= 0.5 * counts[counts > 0].mean()
    unsure = _uncertainty(probabilities[chosen]) > np.median(_uncertainty(probabilities))
    return [
        Reason.RARE if few else Reason.UNSURE if doubt else Reason.TYPICAL
        for few, doubt in zip(rare, unsure, strict=True)
    ]
