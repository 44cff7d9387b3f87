"""Datasets and splits in memory (uint8 images, integer labels, -1 = unlabeled), and progress of reading them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

UNLABELED = -1
# Parts of a dataset, by the names of their folders and by words in the names of shards.
LABELED = ("labeled", "train")
HELD_OUT = {"val": "validation", "validation": "validation", "test": "test"}

Progress = Callable[[str, int, int | None], None]
"""Called with a task, the amount done and the total amount (None if unknown) as work goes on."""


def no_progress(task: str, done: int, total: int | None) -> None:
    """Ignore all reports: the default."""


@contextmanager
def under_way(progress: Progress, task: str) -> Iterator[None]:
    """Report a task of unknown length at its beginning and at its end."""
    progress(task, 0, None)
    try:
        yield
    finally:
        progress(task, 1, 1)


@dataclass(frozen=True)
class Images:
    """Images, (n, h, w, c) uint8, and their labels, (n,) int64; -1 for unlabeled images."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: np.ndarray) -> "Images":
        """Copies of the images and labels of these rows."""
        return Images(self.images[rows], self.labels[rows])


@dataclass(frozen=True)
class Dataset:
    """All images of a source, before any label is hidden."""

    classes: tuple[str, ...]
    train: Images  # labeled and unlabeled
    validation: Images | None = None
    test: Images | None = None
    folds: tuple[np.ndarray, ...] = ()  # the labeled rows of `train` in each predefined fold
    fingerprint: str = ""  # of a folder: a checksum of names, labels, sizes and times of the files
    skipped: tuple[tuple[str, str], ...] = ()  # of a folder: the files that could not be read, each with the reason


@dataclass(frozen=True)
class Split:
    """The images and labels of a run. Training images are never copied: they may be larger than the memory."""

    classes: tuple[str, ...]
    images: np.ndarray  # all training images, (n, h, w, c) uint8
    labels: np.ndarray  # (n,) integers of the smallest type; -1 where the label is hidden, unknown or held out
    truth: np.ndarray  # (n,), the same with the hidden labels. Only for measuring: no method ever gets it
    labeled_rows: np.ndarray
    drawn_rows: np.ndarray  # the labeled rows as batches draw them: if balanced, those of rarer classes are repeated
    unlabeled_rows: np.ndarray  # of the images used without labels; int32 if there are fewer than 2^31
    validation_rows: np.ndarray  # held out for validation
    validation: Images | None
    test: Images | None
    fingerprint: str = ""  # as in `Dataset`
    skipped: tuple[tuple[str, str], ...] = ()
