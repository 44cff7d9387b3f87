"""The input of a report: what is known about runs, as plain values and arrays; errors and their intervals."""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypedDict

import numpy as np

from rankingmatch.core.metrics import Errors, calibration_error, confusion_matrix

BINS = 15  # of confidence
Z95 = 1.959964  # 97.5 % quantile of the normal distribution


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
    def predicted(self) -> np.ndarray:
        """(n,) the classes with the largest logits."""
        return np.asarray(self.logits.argmax(1))

    @property
    def confidence(self) -> np.ndarray:
        """(n,) the probabilities of the predicted classes."""
        powers = np.exp(self.logits - self.logits.max(1, keepdims=True))
        return np.asarray((powers / powers.sum(1, keepdims=True)).max(1))

    @property
    def wrong(self) -> np.ndarray:
        """(n,) bool: whether the true label is known and differs from the prediction."""
        return np.asarray((self.truth >= 0) & (self.predicted != self.truth))

    @property
    def known(self) -> "Predictions":
        """Those whose true label is known."""
        return self.take(np.flatnonzero(self.truth >= 0))

    def take(self, indices: np.ndarray) -> "Predictions":
        """The predictions at these indices."""
        arrays = {name: array[indices] for name, array in vars(self).items() if isinstance(array, np.ndarray)}
        return replace(self, **arrays)


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


def sample(count: int, largest: int) -> np.ndarray:
    """At most `largest` of the indices 0 … count - 1, drawn at random with a fixed seed, in ascending order."""
    if count <= largest:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).permutation(count)[:largest])


# --- errors and their intervals ------------------------------------------------------------------------------


class CalibrationBin(TypedDict):
    """Predictions of similar confidence."""

    confidence: float  # mean
    accuracy: float
    count: int


class ErrorEstimate(TypedDict):
    """The error of a model's predictions, in percent."""

    subset: str
    images: int
    error: float
    balanced_error: float | None  # mean over the classes
    interval: tuple[float, float]
    calibration_error: float


@dataclass(frozen=True)
class PredictionMetrics:
    """How predictions agree with the known labels."""

    estimate: ErrorEstimate
    wrong: np.ndarray  # (n,) bool, of the images whose label is known
    confusion: np.ndarray  # (classes, classes): row = true class
    calibration: list[CalibrationBin]  # bins without images are left out


def prediction_metrics(predictions: Predictions | None) -> PredictionMetrics | None:
    """The metrics over images whose label is known; None if there are none."""
    known = predictions.known if predictions else None
    if not known:
        return None
    confidence, wrong = known.confidence, known.wrong
    confusion = confusion_matrix(known.truth, known.predicted, known.logits.shape[1])
    errors = Errors.of(confusion)
    estimate: ErrorEstimate = {
        "subset": known.subset,
        "images": len(known),
        "error": errors.error,
        "balanced_error": errors.balanced_error,
        "interval": wilson_interval(int(wrong.sum()), len(known)),
        "calibration_error": calibration_error(confidence, ~wrong, BINS),
    }
    numbers = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins: list[CalibrationBin] = [
        {
            "confidence": round(float(confidence[inside].mean()), 4),
            "accuracy": round(float((~wrong)[inside].mean()), 4),
            "count": int(inside.sum()),
        }
        for inside in (numbers == number for number in np.unique(numbers))
    ]
    return PredictionMetrics(estimate, wrong, confusion, bins)


def wilson_interval(wrong: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of an error, in percent."""
    if count == 0:
        return 0.0, 100.0
    share, weight = wrong / count, Z95**2 / count
    center = (share + weight / 2) / (1 + weight)
    half = Z95 * math.sqrt(share * (1 - share) / count + weight / (4 * count)) / (1 + weight)
    return 100 * max(0.0, center - half), 100 * min(1.0, center + half)


def paired_difference(wrong: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Mean and 95 % half-width, in percentage points, of the difference of two errors on the same images."""
    differences = wrong.astype(float) - other.astype(float)
    count = len(differences)
    half = Z95 * differences.std(ddof=1) / math.sqrt(count) if count > 1 else math.inf
    return 100 * float(differences.mean()), 100 * half


def mean_and_interval(values: np.ndarray) -> tuple[float, float | None]:
    """Mean and 95 % half-width by Student's t; None for a single value."""
    if len(values) < 2:
        return float(values.mean()), None
    from scipy.special import stdtrit  # Student's quantile; importing scipy.stats takes seconds

    half = float(stdtrit(len(values) - 1, 0.975)) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean()), float(half)
