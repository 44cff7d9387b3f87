"""Sources of images, and datasets and splits in memory: uint8 images, integer labels, -1 = unlabeled."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

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
class Source(ABC):
    """Where images come from: a dataset known by name, a folder, or shards.

    A source knows what it holds before images are read. `find_source` makes one.
    """

    is_folder: ClassVar[bool] = False  # or shards
    name: str  # of a dataset, or the absolute path of a folder or shard
    title: str  # in tables
    description: str  # what it holds, in one or two lines
    shape: tuple[int, int, int]  # height, width and channels of its images unless they are resized
    classes: int  # their number
    evaluated: int  # the number of validation and test images

    @property
    def side(self) -> int:
        """The side of its images in pixels, or the median of their shorter sides, before any resizing."""
        return self.shape[0]

    @property
    def training(self) -> int | None:
        """The number of training images; None if it is not known before they are read."""
        return None

    @abstractmethod
    def preset(self, image_size: int | None = None) -> dict[str, Any]:
        """The settings it brings; lengths in pixels (padding, cutout) follow the side to which images are resized."""

    @abstractmethod
    def load(
        self,
        data_dir: Path | None = None,
        image_size: int | None = None,
        progress: Progress = no_progress,
        *,
        crop: bool = False,
    ) -> Dataset:
        """Read the images, into memory-mapped files the first time; DataError if they are missing or damaged.

        A named dataset's original files are in `data_dir`. Images are resized to squares of `image_size`, by default to
        `shape`; with `crop`, a folder's images keep their proportions and are cropped, instead of squeezed.
        """


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
