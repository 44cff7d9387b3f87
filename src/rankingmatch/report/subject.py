"""What the report is told of a run: plain values and arrays."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np


class Status(StrEnum):
    """Where a run stands."""

    FINISHED = "finished"
    UNDER_WAY = "under way"
    DIVERGED = "diverged"


@dataclass(frozen=True)
class Outputs:
    """What a model says of images of one part of a dataset."""

    part: str  # "test", "validation" or "unlabeled"
    images: np.ndarray  # (n, h, w, c) uint8
    rows: np.ndarray  # (n,) their places in that part, or among the training images
    truth: np.ndarray  # (n,) -1 where it is not known
    logits: np.ndarray  # (n, classes)
    features: np.ndarray | None = None  # (n, width); None if the network returns logits only

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def probabilities(self) -> np.ndarray:
        """(n, classes): the softmax of the logits."""
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
        """(n,) of bool: those whose truth is known."""
        return np.asarray(self.truth >= 0)

    def take(self, places: np.ndarray) -> "Outputs":
        """Those at these places."""
        features = None if self.features is None else self.features[places]
        return Outputs(
            self.part, self.images[places], self.rows[places], self.truth[places], self.logits[places], features
        )


@dataclass(frozen=True)
class Subject:
    """A run as the report sees it."""

    name: str
    dataset: str
    method: str
    labels: int
    seed: int
    classes: tuple[str, ...]
    status: Status
    steps: int  # how far it is to go
    place: str  # its directory
    command: str  # what to type to have it again
    environment: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)  # what was learned with, by the names of the flags
    history: list[dict[str, Any]] = field(default_factory=list)  # lines of metrics.jsonl
    step_costs: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))  # step, seconds, bytes
    epoch_steps: int = 1  # steps between evaluations
    judged: Outputs | None = None  # test images, or others where there are none
    unlabeled: Outputs | None = None
    unlabeled_total: int = 0  # how many there are, of which `unlabeled` may be a part
    weights: str = ""  # which weights gave the outputs
    threshold: float | None = None  # τ of the method, if it has one
    test_error: float | None = None  # percent, of the last step
    val_error: float | None = None
    seconds: float | None = None
    diverged_at: int | None = None
    diverged_part: str | None = None
    notes: tuple[str, ...] = ()  # what is missing, and why

    @property
    def step(self) -> int:
        """The last step that was evaluated."""
        return int(self.history[-1]["step"]) if self.history else 0

    @property
    def group(self) -> tuple[str, str, int]:
        """Runs of a group are folds: they differ in the seed only, as far as their names say."""
        return (self.dataset, self.method, self.labels)
