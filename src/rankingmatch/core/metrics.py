"""Metrics of predictions, in percent. Row i of a confusion matrix (classes, classes) counts the images of class i."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rankingmatch.core.untrusted import Between

Percent = Annotated[float, Between(0, 100)]


@dataclass(frozen=True)
class Errors:
    """How a model does on the images of one part, in percent. A new metric is one more field."""

    error: Percent
    balanced_error: Percent | None = None  # mean over the classes; None in files of earlier versions, as is the recall
    recall: list[Percent | None] | None = None  # of each class; None for a class without images

    @classmethod
    def of(cls, confusion: np.ndarray) -> "Errors":
        """The errors in a confusion matrix."""
        counts = zip(np.diag(confusion).tolist(), confusion.sum(1).tolist(), strict=True)
        recalls = [100.0 * right / images if images else None for right, images in counts]
        known = [recall for recall in recalls if recall is not None]
        error = 100.0 * (1.0 - float(np.trace(confusion)) / float(confusion.sum()))
        return cls(error, 100.0 - sum(known) / len(known), recalls)


def confusion_matrix(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Count images by true label (n,), the row, and predicted label (n,), the column."""
    counts = np.bincount(truth.astype(np.int64) * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes)


def calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: the mean difference between confidence and accuracy over bins of equal width.

    `confidence` (n,) is the probability of the predicted class, `correct` (n,) whether it is the true one.
    """
    index = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(index, minlength=bins)
    gap = np.bincount(index, confidence, bins) - np.bincount(index, correct, bins)
    return 100.0 * float(np.abs(gap).sum() / max(count.sum(), 1))
