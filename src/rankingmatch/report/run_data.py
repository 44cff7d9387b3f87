"""The input of a report: what is known about a run, as plain values and arrays."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

__all__ = ["Predictions", "RunData", "Status"]


class Status(StrEnum):
    """How far a run got.

    Attributes
    ----------
    FINISHED
        All steps were done; there is a final model.
    UNDER_WAY
        The run has not finished yet, or was interrupted.
    DIVERGED
        Training stopped because a loss was no longer finite.
    """

    FINISHED = "finished"
    UNDER_WAY = "under way"
    DIVERGED = "diverged"


@dataclass(frozen=True)
class Predictions:
    """What a model predicts for `n` images of one subset of a dataset.

    Attributes
    ----------
    subset : str
        The subset: ``"test"``, ``"validation"`` or ``"unlabeled"``.
    images : ndarray of shape (n, height, width, channels), dtype uint8
        The images.
    rows : ndarray of shape (n,)
        Indices of the images in the subset; of unlabeled images, in the training images.
    truth : ndarray of shape (n,)
        True labels, -1 where unknown.
    logits : ndarray of shape (n, classes)
        Outputs of the network.
    features : ndarray of shape (n, width), optional
        Representations before the last layer; None if the network returns logits only.
    """

    subset: str
    images: np.ndarray
    rows: np.ndarray
    truth: np.ndarray
    logits: np.ndarray
    features: np.ndarray | None = None

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
        features = None if self.features is None else self.features[indices]
        return Predictions(
            self.subset, self.images[indices], self.rows[indices], self.truth[indices], self.logits[indices], features
        )


@dataclass(frozen=True)
class RunData:
    """Everything that a report shows about one run.

    Attributes
    ----------
    name : str
        Name of the run on the page; unique among the runs of a page.
    dataset, method : str
        Names of the dataset and the method.
    labels, seed : int
        Number of labels, and the seed that chose them.
    classes : tuple of str
        Class names.
    status : Status
        How far the run got.
    steps : int
        Length of training in steps.
    directory : str
        Name of the run directory.
    command : str
        Command line that repeats the run.
    environment, settings : dict
        Versions and hardware; hyperparameters by the names of their options.
    history : list of dict
        Rows of ``metrics.jsonl``, one for each evaluation. Rows of older runs may lack keys.
    step_costs : ndarray of shape (measured steps, 3)
        Step, seconds and peak memory in bytes of each measured step.
    evaluated : Predictions, optional
        Predictions on test images, or on another subset where there are none.
    unlabeled : Predictions, optional
        Predictions on unlabeled images, possibly a sample of them.
    unlabeled_total : int
        Number of unlabeled images in the dataset.
    weights : str
        Which weights made the predictions.
    threshold : float, optional
        Confidence threshold τ of the method, if it has one.
    test_error, val_error : float, optional
        Errors in percent at the last evaluation.
    test_balanced_error : float, optional
        Mean over the classes of their test errors at the last evaluation; None in older runs.
    seconds : float, optional
        Time the run has taken.
    diverged_at : int, optional
        Step at which training diverged.
    diverged_part : str, optional
        Name of the loss that was no longer finite.
    notes : tuple of str
        What is missing from the page, and why.
    """

    name: str
    dataset: str
    method: str
    labels: int
    seed: int
    classes: tuple[str, ...]
    status: Status
    steps: int
    directory: str
    command: str
    environment: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    step_costs: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))
    evaluated: Predictions | None = None
    unlabeled: Predictions | None = None
    unlabeled_total: int = 0
    weights: str = ""
    threshold: float | None = None
    test_error: float | None = None
    val_error: float | None = None
    test_balanced_error: float | None = None
    seconds: float | None = None
    diverged_at: int | None = None
    diverged_part: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """Step of the last evaluation."""
        return int(self.history[-1]["step"]) if self.history else 0

    @property
    def group(self) -> tuple[str, str, int]:
        """Dataset, method and number of labels: runs of one group are folds, which differ in the seed."""
        return (self.dataset, self.method, self.labels)
