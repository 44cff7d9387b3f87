"""The input of a report: what is known about a run, as plain values and arrays, and how its predictions agree with
the labels.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypedDict

import numpy as np

from rankingmatch.core.metrics import Errors, calibration_error, confusion_matrix
from rankingmatch.report.intervals import wilson_interval

__all__ = ["PredictionMetrics", "Predictions", "RunData", "Status", "prediction_metrics"]

BINS = 15  # of confidence


class Status(StrEnum):
    """How far a run got: a diverged one stopped because a loss was no longer finite."""

    FINISHED = "finished"
    UNDER_WAY = "under way"
    DIVERGED = "diverged"


@dataclass(frozen=True)
class Predictions:
    """What a model predicts for `n` images of one subset of a dataset."""

    subset: str  # "test", "validation" or "unlabeled"
    images: np.ndarray  # (n, height, width, channels) uint8
    rows: np.ndarray  # (n,) indices of the images in the subset; of unlabeled images, in the training images
    truth: np.ndarray  # (n,) true labels, -1 where unknown
    logits: np.ndarray  # (n, classes)
    features: np.ndarray | None = None  # (n, width) inputs of the last layer; None if the network returns logits only

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def probabilities(self) -> np.ndarray:
        """(n, classes) softmax of the logits."""
        powers = np.exp(self.logits - self.logits.max(1, keepdims=True))
        return np.asarray(powers / powers.sum(1, keepdims=True))

    @property
    def predicted(self) -> np.ndarray:
        """(n,) the classes with the largest logits."""
        return np.asarray(self.logits.argmax(1))

    @property
    def confidence(self) -> np.ndarray:
        """(n,) the probabilities of the predicted classes."""
        return np.asarray(self.probabilities.max(1))

    @property
    def known(self) -> np.ndarray:
        """(n,) bool: whether the true label is known."""
        return np.asarray(self.truth >= 0)

    @property
    def wrong(self) -> np.ndarray:
        """(n,) bool: whether the true label is known and differs from the prediction."""
        return np.asarray(self.known & (self.predicted != self.truth))

    def take(self, indices: np.ndarray) -> "Predictions":
        """The predictions at these indices."""
        arrays = {name: array[indices] for name, array in vars(self).items() if isinstance(array, np.ndarray)}
        return replace(self, **arrays)


class CalibrationBin(TypedDict):
    """Predictions of similar confidence."""

    confidence: float  # mean
    accuracy: float
    count: int


@dataclass(frozen=True)
class PredictionMetrics:
    """How predictions agree with the known labels, in percent."""

    count: int
    errors: Errors
    interval: tuple[float, float]  # of the error
    calibration_error: float
    confusion: np.ndarray  # (classes, classes): row = true class
    wrong: np.ndarray  # (count,) of bool
    bins: list[CalibrationBin]  # bins without images are left out


def prediction_metrics(predictions: Predictions) -> PredictionMetrics | None:
    """The metrics over images whose label is known; None if there are none."""
    known = predictions.take(np.flatnonzero(predictions.known))
    if not len(known):
        return None
    confidence, wrong = known.confidence, known.wrong
    confusion = confusion_matrix(known.truth, known.predicted, known.logits.shape[1])
    return PredictionMetrics(
        count=len(known),
        errors=Errors.of(confusion),
        interval=wilson_interval(int(wrong.sum()), len(known)),
        calibration_error=calibration_error(confidence, ~wrong, BINS),
        confusion=confusion,
        wrong=wrong,
        bins=_calibration_bins(confidence, ~wrong),
    )


def _calibration_bins(confidence: np.ndarray, correct: np.ndarray) -> list[CalibrationBin]:
    """Mean confidence, accuracy and number of images of each bin that has any."""
    numbers = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins: list[CalibrationBin] = []
    for inside in (numbers == number for number in np.unique(numbers)):
        accuracy = round(float(correct[inside].mean()), 4)
        mean = round(float(confidence[inside].mean()), 4)
        bins.append({"confidence": mean, "accuracy": accuracy, "count": int(inside.sum())})
    return bins


@dataclass(frozen=True)
class RunData:
    """Everything that a report shows about one run."""

    name: str  # on the page; unique among the runs of a page
    dataset: str
    method: str
    labels: int  # their number
    seed: int
    classes: tuple[str, ...]
    status: Status
    steps: int  # the length of training
    directory: str  # its name
    command: str  # repeats the run
    environment: dict[str, Any] = field(default_factory=dict)  # versions and hardware
    settings: dict[str, Any] = field(default_factory=dict)  # by the names of the flags
    history: list[dict[str, Any]] = field(default_factory=list)  # lines of metrics.jsonl; older ones may lack keys
    step_costs: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))  # step, seconds, peak memory in bytes
    evaluated: Predictions | None = None  # for test images, or for another subset where there are none
    unlabeled: Predictions | None = None  # for unlabeled images, possibly a sample of them
    unlabeled_total: int = 0  # unlabeled images in the dataset
    weights: str = ""  # which weights made the predictions
    threshold: float | None = None  # the confidence threshold τ of the method, if it has one
    test: Errors | None = None  # at the last evaluation, as are those on validation images
    val: Errors | None = None
    seconds: float | None = None
    diverged_at: int | None = None  # the step, and the loss that was no longer finite
    diverged_part: str | None = None
    notes: tuple[str, ...] = ()  # what is missing from the page, and why

    @property
    def test_error(self) -> float | None:
        """The last test error in percent; None without test images."""
        return None if self.test is None else self.test.error

    @property
    def step(self) -> int:
        """Step of the last evaluation."""
        return int(self.history[-1]["step"]) if self.history else 0

    @property
    def group(self) -> tuple[str, str, int]:
        """Dataset, method and number of labels: runs of one group are folds, which differ in the seed."""
        return (self.dataset, self.method, self.labels)
