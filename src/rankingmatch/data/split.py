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
        "γ of the unlabeled images; the others are dropped. By default, {imbalance}.",
        interval="(0, inf)",
        kind="labels",
    )
    split: str | None = option(
        None,
        "Use the labeled and validation images of this split.json of a run, instead of drawing them.",
        kind="labels",
        path=True,
    )
    unlabeled: str | None = option(None, "Folder or shards of more unlabeled images.", kind="source", path=True)
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
        False, "Crop a folder's images to squares, keeping their proportions, instead of squeezing them.", kind="source"
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
        held_out = np.empty(0, dtype=np.int64)
        if settings.validation and dataset.validation is None:
            candidates = np.flatnonzero(truth != UNLABELED)
            if settings.validation >= len(candidates):
                raise DataError(
                    f"{setting('validation')} is {settings.validation}, which leaves none of the {len(candidates)} "
                    "labeled images for training; lower it"
                )
            held_out = np.sort(rng.permutation(candidates)[: settings.validation])
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
        rest = np.setdiff1d(np.arange(len(truth)), np.concatenate([labeled, held_out]))
        if settings.unlabeled_imbalance is None and (not settings.labels or not (truth[rest] != UNLABELED).any()):
            # All labels of the long tail are kept; an image that is left out of it is not used without its label.
            unlabeled = np.asarray(rest[truth[rest] == UNLABELED])
        else:
            # Of the other images, the most that have a long tail; one whose class is not known is never left out.
            labels, gamma = truth[rest], settings.unlabeled_imbalance or imbalance or 1.0
            available = np.bincount(labels[labels != UNLABELED], minlength=len(dataset.classes))
            if not available.any():
                raise DataError(
                    f"{setting('unlabeled_imbalance')} is {gamma:g}, but the true class of no unlabeled image is "
                    "known; remove it"
                )
            sizes = _most(available, "unlabeled_imbalance", gamma, dataset.classes, "unlabeled")
            unlabeled = rest[(keep_of_each_class(labels, sizes, rng) != UNLABELED) | (labels == UNLABELED)]
    return assemble_split(
        dataset, labeled, held_out, unlabeled, include_labeled=settings.include_labeled, balanced=settings.balanced
    )


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
    drawn = labeled
    if balanced:  # the rows of smaller classes are repeated until each class has as many as the largest
        counts = np.bincount(known := train.labels[labeled])
        drawn = np.concatenate([np.resize(labeled[known == label], counts.max()) for label in np.flatnonzero(counts)])
    return Split(
        classes=dataset.classes,
        images=train.images,
        labels=labels,
        truth=truth,
        labeled_rows=labeled,
        drawn_rows=drawn,
        unlabeled_rows=np.flatnonzero(used).astype(row_type),
        validation_rows=held_out,
        validation=train.take(held_out) if len(held_out) else dataset.validation,
        test=dataset.test,
        fingerprint=dataset.fingerprint,
        skipped=dataset.skipped,
    )


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


def long_tail(classes: int, imbalance: float) -> np.ndarray:
    """The size of each class relative to the largest, with exponential decay: N_k / N_1 = γ^(-(k-1)/(K-1)).

    `imbalance` is γ, the size of the first class divided by that of the last; below 1, the last class is the largest.
    """
    exponents = -np.arange(classes) / max(classes - 1, 1)
    sizes = np.float64(imbalance) ** exponents
    return np.asarray(sizes / sizes.max())


def keep_of_each_class(labels: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Hide all but `sizes` labels of each class, chosen at random; hidden are -1."""
    visible = np.full_like(labels, UNLABELED)
    for label, size in enumerate(sizes):
        visible[rng.permutation(np.flatnonzero(labels == label))[:size]] = label
    return visible


def long_tailed_labels(
    labels: np.ndarray, count: int | None, imbalance: float, classes: tuple[str, ...], rng: np.random.Generator
) -> np.ndarray:
    """Hide labels so that `count` remain, with a long tail, or without a count as many as there can be; hidden are -1.

    The sizes are ⌊N_1 γ^(-(k-1)/(K-1))⌋ with the largest N_1 whose total is at most `count`. What is missing
    to `count`, fewer labels than there are classes, goes to the classes that lost most by rounding down.
    """
    available = np.bincount(labels[labels != UNLABELED], minlength=len(classes))
    shares = long_tail(len(classes), imbalance)
    if not count:
        return keep_of_each_class(labels, _most(available, "imbalance", imbalance, classes, "labeled"), rng)
    largest = int(count / shares.sum())
    while _rounded_down(largest + 1, shares).sum() <= count:
        largest += 1
    sizes = _rounded_down(largest, shares)
    sizes[np.argsort(sizes - largest * shares, kind="stable")[: count - sizes.sum()]] += 1
    if sizes.min() < 1:
        least = int(_rounded_down(np.ceil(1 / shares.min() - 1e-9), shares).sum())
        raise DataError(
            f"{setting('labels')} is {count}, too few for {setting('imbalance')} {imbalance:g}: the class "
            f"'{classes[int(shares.argmin())]}' would have none; give at least {least}, or an imbalance closer to 1"
        )
    if (sizes > available).any():
        short = int(np.argmax(sizes - available))
        raise DataError(
            f"{setting('labels')} is {count} and {setting('imbalance')} is {imbalance:g}, which needs {sizes[short]} "
            f"labeled images of the class '{classes[short]}', but it has {available[short]}; lower the number of labels"
        )
    return keep_of_each_class(labels, sizes, rng)


def _rounded_down(largest: float, shares: np.ndarray) -> np.ndarray:
    """⌊N_1 · share⌋, where a product such as 1500 · 0.01 is not rounded down to 14."""
    return np.floor(largest * shares + 1e-9).astype(np.int64)


def _most(available: np.ndarray, name: str, imbalance: float, classes: tuple[str, ...], kind: str) -> np.ndarray:
    """The largest sizes of a long tail that are available; DataError if a class would have none."""
    shares = long_tail(len(classes), imbalance)
    largest = np.floor((available / shares).min() + 1e-9)
    sizes = _rounded_down(largest, shares)
    if sizes.min() < 1:
        scarce, smallest = int((available / shares).argmin()), int(shares.argmin())
        raise DataError(
            f"{setting(name)} is {imbalance:g}, too far from 1 for the {available[scarce]} {kind} images of the class "
            f"'{classes[scarce]}': the class '{classes[smallest]}' would have none"
        )
    return sizes
