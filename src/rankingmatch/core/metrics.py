"""How good predictions are."""

import numpy as np


def confusion_matrix(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """(classes, classes) counts: row = true class, column = predicted class."""
    counts = np.bincount(truth * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes)


def error_rate(confusion: np.ndarray) -> float:
    """Percent of images off the diagonal."""
    return 100.0 * (1.0 - float(np.trace(confusion)) / float(confusion.sum()))


def calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: the mean gap between confidence and accuracy over equal bins, in percent."""
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    gap = np.bincount(place, confidence, bins) - np.bincount(place, correct, bins)
    return 100.0 * float(np.abs(gap).sum() / max(count.sum(), 1))
