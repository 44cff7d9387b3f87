"""Long-tailed classes: how many images of each class are kept, and which."""

import numpy as np

from rankingmatch.core.errors import DataError, setting
from rankingmatch.data.dataset import UNLABELED


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
    available = _class_counts(labels, len(classes))
    shares = long_tail(len(classes), imbalance)
    if not count:
        return keep_of_each_class(labels, _most(available, shares, "imbalance", imbalance, classes, "labeled"), rng)
    sizes = _sizes_with_total(count, shares)
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


def long_tailed_unlabeled_rows(
    truth: np.ndarray, rows: np.ndarray, imbalance: float, classes: tuple[str, ...], rng: np.random.Generator
) -> np.ndarray:
    """Of the unlabeled `rows`, the most that have a long tail, in ascending order.

    `truth` has the true classes; -1 where they are not known. Such images are never left out.
    """
    labels = truth[rows]
    available = _class_counts(labels, len(classes))
    if not available.any():
        raise DataError(
            f"{setting('unlabeled_imbalance')} is {imbalance:g}, but the true class of no unlabeled image is known; "
            "remove it"
        )
    shares = long_tail(len(classes), imbalance)
    sizes = _most(available, shares, "unlabeled_imbalance", imbalance, classes, "unlabeled")
    kept = keep_of_each_class(labels, sizes, rng) != UNLABELED
    return np.sort(rows[kept | (labels == UNLABELED)])


def _class_counts(labels: np.ndarray, classes: int) -> np.ndarray:
    return np.bincount(labels[labels != UNLABELED], minlength=classes)


def _rounded_down(largest: float, shares: np.ndarray) -> np.ndarray:
    """⌊N_1 · share⌋, where a product such as 1500 · 0.01 is not rounded down to 14."""
    return np.floor(largest * shares + 1e-9).astype(np.int64)


def _sizes_with_total(count: int, shares: np.ndarray) -> np.ndarray:
    """The sizes of the classes, whose total is `count`."""
    largest = int(count / shares.sum())
    while _rounded_down(largest + 1, shares).sum() <= count:
        largest += 1
    sizes = _rounded_down(largest, shares)
    lost = largest * shares - sizes
    sizes[np.argsort(-lost, kind="stable")[: count - sizes.sum()]] += 1
    return sizes


def _most(
    available: np.ndarray, shares: np.ndarray, name: str, imbalance: float, classes: tuple[str, ...], kind: str
) -> np.ndarray:
    """The largest sizes that are available; DataError if a class would have none."""
    largest = np.floor((available / shares).min() + 1e-9)
    sizes = _rounded_down(largest, shares)
    if sizes.min() < 1:
        scarce, smallest = int((available / shares).argmin()), int(shares.argmin())
        raise DataError(
            f"{setting(name)} is {imbalance:g}, too far from 1 for the {available[scarce]} {kind} images of the class "
            f"'{classes[scarce]}': the class '{classes[smallest]}' would have none"
        )
    return sizes
