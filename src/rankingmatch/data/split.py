"""Datasets and splits: uint8 images, integer labels, -1 = unlabeled."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.core.errors import DataError
from rankingmatch.core.options import option
from rankingmatch.core.randomness import Purpose, numpy_generator

log = logging.getLogger(__name__)

UNLABELED = -1


@dataclass(frozen=True)
class DataSettings:
    """Which images and labels a run uses."""

    labels: int | None = option(
        None,
        "Number of training labels to keep, the same for each class; all others are hidden. 0 keeps all.",
        interval="[0, inf)",
        kind="labels",
    )
    validation: int = option(
        0, "Number of labeled training images held out for validation.", interval="[0, inf)", kind="labels"
    )
    split: str | None = option(
        None,
        "The split.json of a run: use its labeled and validation images instead of drawing them with the seed.",
        kind="labels",
        path=True,
    )
    unlabeled: str | None = option(
        None, "A folder of unlabeled images, in addition to the images of a folder.", kind="source", path=True
    )
    labels_csv: str | None = option(
        None,
        "The labels of a folder's images: a CSV file with the columns file and label, which is empty for unlabeled "
        "images.",
        kind="source",
        path=True,
    )
    balanced: bool = option(False, "Draw labeled images of all classes equally often, however many each class has.")
    include_labeled: bool = option(
        False, "Add the labeled images to the unlabeled ones, as FixMatch did.", kind="labels"
    )
    image_size: int | None = option(
        None,
        "Resize all images to squares of this side; {padding} and {cutout} follow unless given.",
        interval="[1, 4096]",
        kind="source",
    )


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
    """What a name or a folder holds, before any label is hidden.

    `folds` has the rows of the training images that each given fold labels, where a dataset comes with folds.
    """

    classes: tuple[str, ...]
    train: Images
    validation: Images | None = None
    test: Images | None = None
    folds: tuple[np.ndarray, ...] = ()
    fingerprint: str = ""  # of a folder: another one if its files change
    skipped: tuple[tuple[str, str], ...] = ()  # of a folder: files that are no images, and why


@dataclass(frozen=True)
class Split:
    """What a run sees. The training images are never copied: they may be larger than the memory.

    `truth` has the hidden labels: it only measures, no method ever gets it.
    """

    classes: tuple[str, ...]
    images: np.ndarray
    labels: np.ndarray  # -1 where hidden, unknown or held out
    truth: np.ndarray
    labeled_rows: np.ndarray
    drawn_rows: np.ndarray  # the labeled rows as batches draw them: if balanced, those of rarer classes repeatedly
    unlabeled_rows: np.ndarray
    validation_rows: np.ndarray
    validation: Images | None
    test: Images | None
    fingerprint: str = ""
    skipped: tuple[tuple[str, str], ...] = ()


def make_split(dataset: Dataset, settings: DataSettings, seed: int) -> Split:
    """Hold out validation images and hide all but `settings.labels` labels; the seed decides which."""
    rng = numpy_generator(seed, Purpose.SPLIT)
    truth = dataset.train.labels
    if settings.split is not None:
        labeled, held_out = read_rows(Path(settings.split), truth, dataset.fingerprint)
    elif dataset.folds and settings.labels in (None, len(dataset.folds[0])):
        labeled, held_out = _given_fold(dataset, seed)
    else:
        held_out = _held_out(dataset, settings.validation, rng)
        known = truth.copy()
        known[held_out] = UNLABELED
        if settings.labels:
            known = hide_labels(known, settings.labels, dataset.classes, rng)
        labeled = np.flatnonzero(known != UNLABELED)
    if len(labeled) == 0:
        raise DataError("no training image has a label; label some images of each class")
    counts = np.bincount(truth[labeled], minlength=len(dataset.classes))
    if not (counts.all() or dataset.folds):
        name = dataset.classes[int(counts.argmin())]
        raise DataError(f"no labeled image of the class '{name}' is left for training; label more, or hold out fewer")
    return assemble_split(
        dataset, labeled, held_out, include_labeled=settings.include_labeled, balanced=settings.balanced
    )


def assemble_split(
    dataset: Dataset,
    labeled: np.ndarray,
    held_out: np.ndarray,
    *,
    include_labeled: bool = False,
    balanced: bool = False,
) -> Split:
    """The split in which these training rows are labeled, those held out, and the others unlabeled."""
    train = dataset.train
    labels = np.full_like(train.labels, UNLABELED)
    labels[labeled] = train.labels[labeled]
    pool = np.ones(len(train), dtype=bool)
    pool[held_out] = False
    if not include_labeled:
        pool[labeled] = False
    validation = train.take(held_out) if len(held_out) else dataset.validation
    return Split(
        classes=dataset.classes,
        images=train.images,
        labels=labels,
        truth=train.labels,
        labeled_rows=labeled,
        drawn_rows=balanced_rows(labeled, train.labels[labeled]) if balanced else labeled,
        unlabeled_rows=np.flatnonzero(pool),
        validation_rows=held_out,
        validation=validation,
        test=dataset.test,
        fingerprint=dataset.fingerprint,
        skipped=dataset.skipped,
    )


def balanced_rows(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Rows of which each class has as many as the largest: those of the others come again in turn."""
    counts = np.bincount(labels)
    return np.concatenate([np.resize(rows[labels == label], counts.max()) for label in np.flatnonzero(counts)])


def rows_to_json(split: Split) -> dict[str, Any]:
    """Which training images are labeled and which validate: the content of a split.json.

    Of a folder, also its fingerprint and the files that were left out.
    """
    rows: dict[str, Any] = {"labeled": split.labeled_rows.tolist(), "validation": split.validation_rows.tolist()}
    return {**rows, "fingerprint": split.fingerprint, "skipped": split.skipped} if split.fingerprint else rows


def read_rows(path: Path, truth: np.ndarray, fingerprint: str = "") -> tuple[np.ndarray, np.ndarray]:
    """The labeled and the validation rows in a split.json, checked against the labels there are."""
    try:
        values = json.loads(path.read_text())
        labeled, held_out = (np.array(values[key], dtype=np.int64) for key in ("labeled", "validation"))
    except OSError as error:
        raise DataError(f"--split {path} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"--split {path} cannot be read as a split.json ({error})") from error
    rows = np.concatenate([labeled, held_out])
    if rows.ndim != 1 or len(np.unique(rows)) < len(rows) or (rows < 0).any() or (rows >= len(truth)).any():
        raise DataError(f"--split {path} names rows twice or beyond the {len(truth)} training images")
    if (truth[rows] == UNLABELED).any():
        raise DataError(f"--split {path} asks for labels of images that have none; is it of another dataset?")
    if fingerprint and values.get("fingerprint", fingerprint) != fingerprint:
        log.warning("--split %s was made when the folder had other files, or other times: are its rows these?", path)
    return np.sort(labeled), np.sort(held_out)


def _given_fold(dataset: Dataset, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows a given fold labels, and the other labeled images, which are its validation images."""
    labeled = np.sort(dataset.folds[seed % len(dataset.folds)])
    return labeled, np.setdiff1d(np.flatnonzero(dataset.train.labels != UNLABELED), labeled)


def _held_out(dataset: Dataset, count: int, rng: np.random.Generator) -> np.ndarray:
    """The rows of the training images that are kept for validation."""
    if count == 0 or dataset.validation is not None:
        return np.empty(0, dtype=np.int64)
    known = np.flatnonzero(dataset.train.labels != UNLABELED)
    if count >= len(known):
        raise DataError(f"--validation {count} leaves no labeled image of {len(known)} for training; lower it")
    return np.sort(rng.permutation(known)[:count])


def hide_labels(labels: np.ndarray, count: int, classes: tuple[str, ...], rng: np.random.Generator) -> np.ndarray:
    """A copy of `labels` in which only `count` remain, the same number for each class.

    If `count` is no multiple of the number of classes, classes drawn at random have one more. A class that has fewer
    keeps them all, and the others have more.
    """
    known = int((labels != UNLABELED).sum())
    if count > known:
        raise DataError(f"--labels {count} is more than the {known} labeled training images; lower it")
    if count < len(classes):
        raise DataError(f"--labels {count} is fewer than the {len(classes)} classes; each needs at least one label")
    each, rest = divmod(count, len(classes))
    wanted = np.full(len(classes), each)
    wanted[rng.permutation(len(classes))[:rest]] += 1
    there = np.bincount(labels[labels != UNLABELED], minlength=len(classes))
    if not there.all():
        raise DataError(f"class '{classes[int(there.argmin())]}' has no labeled training image; add some")
    wanted = np.minimum(wanted, there)
    while missing := count - int(wanted.sum()):
        wanted[np.flatnonzero(there > wanted)[:missing]] += 1
    visible = np.full_like(labels, UNLABELED)
    for label in range(len(classes)):
        visible[rng.permutation(np.flatnonzero(labels == label))[: wanted[label]]] = label
    return visible
