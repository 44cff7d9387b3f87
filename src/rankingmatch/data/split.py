"""Datasets and splits: uint8 images, integer labels, -1 = unlabeled."""

from dataclasses import dataclass, field, replace

import numpy as np

from rankingmatch.errors import DataError
from rankingmatch.options import option
from rankingmatch.randomness import Purpose, numpy_generator

UNLABELED = -1


@dataclass(frozen=True)
class DataSettings:
    """Which labels a run may see."""

    labels: int | None = option(
        None,
        "How many training labels to keep, the same number for each class; all others are hidden.",
        interval="[1, inf)",
    )
    validation: int = option(0, "How many labeled training images are held out for validation.", interval="[0, inf)")
    include_labeled: bool = option(False, "Put the labeled images into the unlabeled pool, too, as FixMatch did.")


@dataclass(frozen=True)
class Images:
    """(n, h, w, c) uint8 images and their (n,) int64 labels; -1 where there is none."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: np.ndarray) -> "Images":
        """The images and labels at these rows."""
        return Images(self.images[rows], self.labels[rows])


@dataclass(frozen=True)
class Dataset:
    """What a name or a folder holds, before any label is hidden."""

    classes: tuple[str, ...]
    train: Images
    validation: Images | None = None
    test: Images | None = None


@dataclass(frozen=True)
class Split:
    """What a run sees. `truth` has the hidden labels: it only measures, no method ever gets it."""

    classes: tuple[str, ...]
    images: np.ndarray
    labels: np.ndarray
    truth: np.ndarray
    validation: Images | None
    test: Images | None
    include_labeled: bool = False
    labeled_rows: np.ndarray = field(init=False)
    unlabeled_rows: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        labeled = np.flatnonzero(self.labels != UNLABELED)
        unlabeled = np.flatnonzero(self.labels == UNLABELED)
        object.__setattr__(self, "labeled_rows", labeled)
        everything = np.arange(len(self.labels)) if self.include_labeled else unlabeled
        object.__setattr__(self, "unlabeled_rows", everything)


def make_split(dataset: Dataset, settings: DataSettings, seed: int) -> Split:
    """Hold out validation images and hide all but `settings.labels` labels; the seed decides which."""
    rng = numpy_generator(seed, Purpose.SPLIT)
    dataset = _hold_out(dataset, settings.validation, rng)
    train = dataset.train
    labels = train.labels
    if settings.labels is not None:
        labels = hide_labels(labels, settings.labels, dataset.classes, rng)
    if not (labels != UNLABELED).any():
        raise DataError("no training image has a label; label some images of each class")
    return Split(
        dataset.classes,
        train.images,
        labels,
        train.labels,
        dataset.validation,
        dataset.test,
        settings.include_labeled,
    )


def _hold_out(dataset: Dataset, count: int, rng: np.random.Generator) -> Dataset:
    if count == 0 or dataset.validation is not None:
        return dataset
    known = np.flatnonzero(dataset.train.labels != UNLABELED)
    if count >= len(known):
        raise DataError(f"--validation {count} leaves no labeled image of {len(known)} for training; lower it")
    held_out = np.sort(rng.permutation(known)[:count])
    kept = np.setdiff1d(np.arange(len(dataset.train)), held_out)
    return replace(dataset, train=dataset.train.take(kept), validation=dataset.train.take(held_out))


def hide_labels(labels: np.ndarray, count: int, classes: tuple[str, ...], rng: np.random.Generator) -> np.ndarray:
    """A copy of `labels` in which only `count` remain, the same number for each class.

    If `count` is no multiple of the number of classes, classes drawn at random have one more.
    """
    known = int((labels != UNLABELED).sum())
    if count > known:
        raise DataError(f"--labels {count} is more than the {known} labeled training images; lower it")
    if count < len(classes):
        raise DataError(f"--labels {count} is fewer than the {len(classes)} classes; each needs at least one label")
    each, rest = divmod(count, len(classes))
    wanted = np.full(len(classes), each)
    wanted[rng.permutation(len(classes))[:rest]] += 1
    visible = np.full_like(labels, UNLABELED)
    for label, name in enumerate(classes):
        rows = np.flatnonzero(labels == label)
        if len(rows) < wanted[label]:
            raise DataError(
                f"class '{name}' has {len(rows)} images but {wanted[label]} labels were asked; "
                "lower --labels or add images"
            )
        visible[rng.permutation(rows)[: wanted[label]]] = label
    return visible
