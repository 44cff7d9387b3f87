"""Error, confusion matrix and calibration of predictions."""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from rankingmatch.core.metrics import balanced_error_rate, calibration_error, confusion_matrix, error_rate
from rankingmatch.report.intervals import wilson_interval
from rankingmatch.report.run_data import Predictions

BINS = 15


class CalibrationBin(TypedDict):
    """Predictions of similar confidence."""

    confidence: float  # mean
    accuracy: float
    count: int


@dataclass(frozen=True)
class PredictionMetrics:
    """How predictions agree with the known labels; errors in percent."""

    count: int
    error: float
    balanced_error: float  # mean over the classes
    interval: tuple[float, float]
    calibration_error: float
    confusion: np.ndarray  # (classes, classes): row = true class
    wrong: np.ndarray  # (count,) of bool
    bins: list[CalibrationBin]  # bins without images are left out


def prediction_metrics(predictions: Predictions) -> PredictionMetrics | None:
    """The metrics over images whose label is known; None if there are none."""
    known = predictions.take(np.flatnonzero(predictions.known))
    if not len(known):
        return None
    predicted, confidence = known.predicted, known.confidence
    wrong = predicted != known.truth
    confusion = confusion_matrix(known.truth, predicted, known.logits.shape[1])
    return PredictionMetrics(
        count=len(known),
        error=error_rate(confusion),
        balanced_error=balanced_error_rate(confusion),
        interval=wilson_interval(int(wrong.sum()), len(known)),
        calibration_error=calibration_error(confidence, ~wrong, BINS),
        confusion=confusion,
        wrong=wrong,
        bins=calibration_bins(confidence, ~wrong),
    )


def calibration_bins(confidence: np.ndarray, correct: np.ndarray) -> list[CalibrationBin]:
    """Mean confidence, accuracy and number of images of each bin that has any."""
    numbers = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins: list[CalibrationBin] = []
    for number in np.unique(numbers):
        inside = numbers == number
        bins.append(
            {
                "confidence": round(float(confidence[inside].mean()), 4),
                "accuracy": round(float(correct[inside].mean()), 4),
                "count": int(inside.sum()),
            }
        )
    return bins
