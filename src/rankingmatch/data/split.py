"""Which training images are labeled, unlabeled or held out for validation."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.core.errors import DataError, setting
from rankingmatch.core.randomness import Purpose, numpy_generator
from rankingmatch.data.dataset import UNLABELED, Dataset, Split
from rankingmatch.data.imbalance import keep_of_each_class, long_tailed_labels, long_tailed_unlabeled_rows
from rankingmatch.data.settings import DataSettings

__all__ = ["assemble_split", "hide_labels", "make_split", "read_rows", "rows_to_json"]

log = logging.getLogger(__name__)


def make_split(dataset: Dataset, settings: DataSettings, seed: int) -> Split:
    """Hold out validation images and hide all but some labels; the seed decides which.

    With an imbalance, the labels and the unlabeled images are those of a long tail, and the other images are left out.
    The validation and test images keep the distribution of the dataset.

    Parameters
    ----------
    dataset
        The images and all their labels.
    settings
        How many labels to keep and images to hold out, or a file that lists them.
    seed
        The seed; of predefined folds, the fold ``seed`` modulo their number is used.

    Returns
    -------
    Split
        The images and labels of a run.

    Raises
    ------
    DataError
        If there are too few labels, or a class has none.
    """
    rng = numpy_generator(seed, Purpose.SPLIT)
    truth, imbalance = dataset.train.labels, settings.imbalance
    unlabeled = None
    if settings.split is not None:
        labeled, held_out, unlabeled = read_rows(Path(settings.split), truth, dataset.fingerprint)
    elif dataset.folds and imbalance is None and settings.labels in (None, len(dataset.folds[0])):
        labeled, held_out = _fold_rows(dataset, seed)
    else:
        held_out = _held_out_rows(dataset, settings.validation, rng)
        known = truth.copy()
        known[held_out] = UNLABELED
        if imbalance is not None:
            known = long_tailed_labels(known, settings.labels, imbalance, dataset.classes, rng)
        elif settings.labels:
            known = hide_labels(known, settings.labels, dataset.classes, rng)
        labeled = np.flatnonzero(known != UNLABELED)
    if len(labeled) == 0:
        raise DataError("no training image has a label; label some images of each class")
    counts = np.bincount(truth[labeled], minlength=len(dataset.classes))
    if not (counts.all() or dataset.folds):
        name = dataset.classes[int(counts.argmin())]
        raise DataError(
            f"the class '{name}' has no labeled image left for training; label more images, or lower "
            f"{setting('validation')}"
        )
    if settings.split is None and (imbalance or settings.unlabeled_imbalance):
        unlabeled = _long_tailed_rest(dataset, labeled, held_out, settings, rng)
    return assemble_split(
        dataset,
        labeled,
        held_out,
        unlabeled,
        include_labeled=settings.include_labeled,
        balanced=settings.balanced,
    )


def _long_tailed_rest(
    dataset: Dataset, labeled: np.ndarray, held_out: np.ndarray, settings: DataSettings, rng: np.random.Generator
) -> np.ndarray:
    """The unlabeled rows of a long-tailed split; images whose true class is not known are all among them."""
    truth = dataset.train.labels
    rest = np.setdiff1d(np.arange(len(truth)), np.concatenate([labeled, held_out]))
    imbalance = settings.unlabeled_imbalance
    if imbalance is None and (not settings.labels or not (truth[rest] != UNLABELED).any()):
        # All labels of the long tail are kept; an image that is left out of it is not used without its label.
        return np.asarray(rest[truth[rest] == UNLABELED])
    return long_tailed_unlabeled_rows(truth, rest, imbalance or settings.imbalance or 1.0, dataset.classes, rng)


def assemble_split(
    dataset: Dataset,
    labeled: np.ndarray,
    held_out: np.ndarray,
    unlabeled: np.ndarray | None = None,
    *,
    include_labeled: bool = False,
    balanced: bool = False,
) -> Split:
    """Make the split in which given training rows are labeled, held out or unlabeled.

    Parameters
    ----------
    dataset
        The images and all their labels.
    labeled
        The rows of labeled images, (m,).
    held_out
        The rows of validation images, (k,); if empty, the validation images of the dataset are used.
    unlabeled
        The rows of unlabeled images; by default all that are neither labeled nor held out.
    include_labeled
        Whether labeled images are used as unlabeled ones, too.
    balanced
        Whether all classes are drawn equally often.

    Returns
    -------
    Split
        The images and labels of a run.
    """
    train = dataset.train
    # A pool may have very many rows: the smallest types that hold all labels and all row numbers.
    truth = train.labels.astype(np.min_scalar_type(-max(1, len(dataset.classes))))
    row_type = np.int32 if len(train) <= np.iinfo(np.int32).max else np.int64
    labels = np.full_like(truth, UNLABELED)
    labels[labeled] = truth[labeled]
    used = np.full(len(train), unlabeled is None)
    if unlabeled is not None:
        used[unlabeled] = True
    used[held_out] = False
    used[labeled] = include_labeled
    validation = train.take(held_out) if len(held_out) else dataset.validation
    return Split(
        classes=dataset.classes,
        images=train.images,
        labels=labels,
        truth=truth,
        labeled_rows=labeled,
        drawn_rows=balanced_rows(labeled, train.labels[labeled]) if balanced else labeled,
        unlabeled_rows=np.flatnonzero(used).astype(row_type),
        validation_rows=held_out,
        validation=validation,
        test=dataset.test,
        fingerprint=dataset.fingerprint,
        skipped=dataset.skipped,
    )


def balanced_rows(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Repeat the rows of smaller classes until each class has as many as the largest."""
    counts = np.bincount(labels)
    return np.concatenate([np.resize(rows[labels == label], counts.max()) for label in np.flatnonzero(counts)])


def rows_to_json(split: Split) -> dict[str, Any]:
    """Return the content of a split.json: which training images are labeled and which are held out.

    Parameters
    ----------
    split
        Any split.

    Returns
    -------
    dict
        "labeled" and "validation" rows; "unlabeled" ones if other images are left out; for a folder, also its
        "fingerprint" and the "skipped" files.
    """
    rows: dict[str, Any] = {"labeled": split.labeled_rows.tolist(), "validation": split.validation_rows.tolist()}
    unlabeled = np.setdiff1d(split.unlabeled_rows, split.labeled_rows)
    if len(unlabeled) + len(split.labeled_rows) + len(split.validation_rows) < len(split.images):
        rows["unlabeled"] = unlabeled.tolist()
    return {**rows, "fingerprint": split.fingerprint, "skipped": split.skipped} if split.fingerprint else rows


def read_rows(path: Path, truth: np.ndarray, fingerprint: str = "") -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Read the rows of a split.json: labeled, for validation (both must have labels), and unlabeled.

    The unlabeled rows are None if they are all the others.
    """
    try:
        values = json.loads(path.read_text())
        labeled, held_out = (np.array(values[key], dtype=np.int64) for key in ("labeled", "validation"))
        unlabeled = np.array(values["unlabeled"], dtype=np.int64) if "unlabeled" in values else np.arange(0)
    except OSError as error:
        raise DataError(f"{setting('split')} is {path}, which cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"{setting('split')} is {path}, which is not a split.json ({error})") from error
    one_dimensional = labeled.ndim == held_out.ndim == unlabeled.ndim == 1
    rows = np.concatenate([part.reshape(-1) for part in (labeled, held_out, unlabeled)])
    repeated = len(np.unique(rows)) < len(rows)
    if not one_dimensional or repeated or (rows < 0).any() or (rows >= len(truth)).any():
        raise DataError(
            f"{setting('split')} is {path}, which has rows twice or beyond the {len(truth)} training images; use a "
            "split.json of this dataset"
        )
    if (truth[rows[: len(rows) - len(unlabeled)]] == UNLABELED).any():
        raise DataError(
            f"{setting('split')} is {path}, which has rows of unlabeled images; use a split.json of this dataset"
        )
    if fingerprint and values.get("fingerprint", fingerprint) != fingerprint:
        log.warning("%s was written when the folder's files were different; its rows may be other images now", path)
    return np.sort(labeled), np.sort(held_out), np.sort(unlabeled) if "unlabeled" in values else None


def _fold_rows(dataset: Dataset, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The labeled rows of a predefined fold, and all other rows with labels, which are for validation."""
    labeled = np.sort(dataset.folds[seed % len(dataset.folds)])
    return labeled, np.setdiff1d(np.flatnonzero(dataset.train.labels != UNLABELED), labeled)


def _held_out_rows(dataset: Dataset, count: int, rng: np.random.Generator) -> np.ndarray:
    """The rows held out for validation: none if the dataset has validation images."""
    if count == 0 or dataset.validation is not None:
        return np.empty(0, dtype=np.int64)
    known = np.flatnonzero(dataset.train.labels != UNLABELED)
    if count >= len(known):
        raise DataError(
            f"{setting('validation')} is {count}, which leaves none of the {len(known)} labeled images for training; "
            "lower it"
        )
    return np.sort(rng.permutation(known)[:count])


def hide_labels(labels: np.ndarray, count: int, classes: tuple[str, ...], rng: np.random.Generator) -> np.ndarray:
    """Hide all but `count` labels, the same number for each class.

    If `count` is not a multiple of the number of classes, random classes keep one more. A class with fewer labels keeps
    all of them, and the others keep more.

    Parameters
    ----------
    labels
        (n,) int64; -1 where there is none.
    count
        The number of labels to keep.
    classes
        The class names.
    rng
        The source of randomness.

    Returns
    -------
    ndarray
        A copy of `labels` with -1 where a label is hidden.

    Raises
    ------
    DataError
        If there are fewer labels than `count`, or a class has none.
    """
    available = np.bincount(labels[labels != UNLABELED], minlength=len(classes))
    _check_count(count, available, classes)
    each, rest = divmod(count, len(classes))
    kept = np.full(len(classes), each)
    kept[rng.permutation(len(classes))[:rest]] += 1
    kept = np.minimum(kept, available)
    while missing := count - int(kept.sum()):
        kept[np.flatnonzero(available > kept)[:missing]] += 1
    return keep_of_each_class(labels, kept, rng)


def _check_count(count: int, available: np.ndarray, classes: tuple[str, ...]) -> None:
    if count > available.sum():
        raise DataError(
            f"{setting('labels')} is {count}, more than the {available.sum()} labeled training images; lower it"
        )
    if count < len(classes):
        raise DataError(
            f"{setting('labels')} is {count}, fewer than the {len(classes)} classes; each class needs a label"
        )
    if not available.all():
        raise DataError(f"the class '{classes[int(available.argmin())]}' has no labeled training image; add some")
