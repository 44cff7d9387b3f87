"""Which training images are labeled, unlabeled or held out for validation, and the options that decide it."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.core.errors import DataError, setting
from rankingmatch.core.options import option
from rankingmatch.core.randomness import Purpose, numpy_generator
from rankingmatch.core.untrusted import read_json
from rankingmatch.data.dataset import UNLABELED, Dataset, Split
from rankingmatch.data.imbalance import keep_of_each_class, long_tailed_labels, long_tailed_unlabeled_rows

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataSettings:
    """Which images and labels a run uses."""

    labels: int | None = option(
        None,
        "Number of training labels to keep, the same for each class; the others are hidden. 0 keeps all.",
        interval="[0, inf)",
        kind="labels",
    )
    validation: int = option(
        0, "Number of labeled training images held out for validation.", interval="[0, inf)", kind="labels"
    )
    imbalance: float | None = option(
        None,
        "γ: keep a long tail of labels. Class k of K keeps γ^(-(k-1)/(K-1)) times as many as the first "
        "class; if γ is below 1, the last class keeps the most.",
        interval="(0, inf)",
        kind="labels",
    )
    unlabeled_imbalance: float | None = option(
        None,
        "γ of the unlabeled images; the rest of them is left out. By default, {imbalance}.",
        interval="(0, inf)",
        kind="labels",
    )
    split: str | None = option(
        None,
        "Use the labeled and validation images of this split.json of a run, instead of drawing them.",
        kind="labels",
        path=True,
    )
    unlabeled: str | None = option(
        None,
        "Folder or shards of more unlabeled images.",
        kind="source",
        path=True,
    )
    labels_csv: str | None = option(
        None,
        "CSV file with the labels of a folder's images, in the columns file and label (empty if unlabeled). "
        "An optional column part has train, test, or none to leave an image out.",
        kind="source",
        path=True,
    )
    balanced: bool = option(
        False, "Draw labeled images of all classes equally often, whatever the sizes of the classes."
    )
    include_labeled: bool = option(
        False, "Add the labeled images to the unlabeled ones, as FixMatch did.", kind="labels"
    )
    crop: bool = option(
        False,
        "Crop a folder's images to squares, keeping their proportions, instead of squeezing them.",
        kind="source",
    )
    image_size: int | None = option(
        None,
        "Resize all images to squares with sides of this many pixels; {padding} and {cutout} scale with it "
        "unless given.",
        interval="[1, 4096]",
        kind="source",
    )


def make_split(dataset: Dataset, settings: DataSettings, seed: int) -> Split:
    """Hold out validation images and hide all but some labels; the seed decides which, and which given fold is used.

    With an imbalance, the labels and the unlabeled images are those of a long tail, and the other images are left out.
    The validation and test images keep the distribution of the dataset.
    """
    rng = numpy_generator(seed, Purpose.SPLIT)
    truth, imbalance = dataset.train.labels, settings.imbalance
    unlabeled = None
    if settings.split is not None:
        labeled, held_out, unlabeled = read_rows(Path(settings.split), truth, dataset.fingerprint)
    elif dataset.folds and imbalance is None and settings.labels in (None, len(dataset.folds[0])):
        labeled = np.sort(dataset.folds[seed % len(dataset.folds)])
        held_out = np.setdiff1d(np.flatnonzero(truth != UNLABELED), labeled)
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
    """Make the split in which given training rows are labeled, held out for validation, or unlabeled.

    Without held-out rows, the validation images of the dataset are used. Unlabeled are by default all other rows, and
    with `include_labeled` the labeled ones, too. If `balanced`, all classes are drawn equally often.
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
        drawn_rows=_balanced_rows(labeled, train.labels[labeled]) if balanced else labeled,
        unlabeled_rows=np.flatnonzero(used).astype(row_type),
        validation_rows=held_out,
        validation=validation,
        test=dataset.test,
        fingerprint=dataset.fingerprint,
        skipped=dataset.skipped,
    )


def _balanced_rows(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Repeat the rows of smaller classes until each class has as many as the largest."""
    counts = np.bincount(labels)
    return np.concatenate([np.resize(rows[labels == label], counts.max()) for label in np.flatnonzero(counts)])


def rows_to_json(split: Split) -> dict[str, Any]:
    """The content of a split.json: "labeled" and "validation" rows of the training images.

    Also "unlabeled" ones if other images are left out, and for a folder its "fingerprint" and the "skipped" files.
    """
    rows: dict[str, Any] = {"labeled": split.labeled_rows.tolist(), "validation": split.validation_rows.tolist()}
    unlabeled = np.setdiff1d(split.unlabeled_rows, split.labeled_rows)
    if len(unlabeled) + len(split.labeled_rows) + len(split.validation_rows) < len(split.images):
        rows["unlabeled"] = unlabeled.tolist()
    return {**rows, "fingerprint": split.fingerprint, "skipped": split.skipped} if split.fingerprint else rows


def read_rows(path: Path, truth: np.ndarray, fingerprint: str = "") -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The rows of a split.json: labeled, for validation (both must have labels), unlabeled (None: all others)."""
    try:
        values = read_json(path)
        labeled, held_out = (np.array(values[key], dtype=np.int64) for key in ("labeled", "validation"))
        unlabeled = np.array(values["unlabeled"], dtype=np.int64) if "unlabeled" in values else np.arange(0)
    except OSError as error:
        raise DataError(f"{setting('split')} is {path}, which cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, OverflowError) as error:  # also a device or a pipe
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
    """Hide all but `count` labels, the same number for each class; hidden are -1.

    If `count` is not a multiple of the number of classes, random classes keep one more. A class with fewer labels keeps
    all of them, and the others keep more.
    """
    available = np.bincount(labels[labels != UNLABELED], minlength=len(classes))
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
    each, rest = divmod(count, len(classes))
    kept = np.full(len(classes), each)
    kept[rng.permutation(len(classes))[:rest]] += 1
    kept = np.minimum(kept, available)
    while missing := count - int(kept.sum()):
        kept[np.flatnonzero(available > kept)[:missing]] += 1
    return keep_of_each_class(labels, kept, rng)
