"""Images and labels given as arrays, checked and converted: uint8 images, class indices, -1 = unlabeled."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d

from rankingmatch.core.errors import ConfigError, InputError
from rankingmatch.data.dataset import UNLABELED

CHANNELS = (1, 3, 4)  # of most images: grayscale, color, and color with transparency
_MISSING = ("None", "nan", "<NA>", "NaT")  # str() of None, NaN and the missing values of pandas


def encode_labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Find the sorted classes (classes,) among labels, and the index of each row's class, or -1; (n,) int64.

    Unlabeled is -1 or NaN among numbers; None, "" or NaN among strings.
    """
    values = label_array(y)
    known = ~missing_labels(values)
    if not known.any():
        raise InputError("no row of y has a label; label some images of each class")
    try:
        classes, indices = np.unique(values[known], return_inverse=True)
    except TypeError as error:
        raise InputError(f"y mixes labels that cannot be compared ({error}); use either numbers or strings") from error
    if classes.dtype == object:
        classes = np.array(classes.tolist())  # an array of integers or strings, if all of them are
    labels = np.full(len(values), UNLABELED, dtype=np.int64)
    labels[known] = indices
    return classes, labels


def label_array(y: Any) -> np.ndarray:
    """Labels (n,) or (n, 1) as a checked array (n,): numbers, strings, or objects if a list mixes strings with None."""
    if y is None:
        raise InputError("this estimator requires y to be passed, but the target y is None; use -1 for unlabeled rows")
    if isinstance(y, np.ma.MaskedArray):
        y = np.where(np.ma.getmaskarray(y), np.array(None), np.ma.getdata(y))
    values = y if hasattr(y, "dtype") else np.array(y, dtype=object)
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = column_or_1d(values, warn=True)
    if values.ndim != 1:
        raise InputError(f"y has the shape {values.shape}; it must have one label per image, (n,)")
    if values.dtype == object and all(isinstance(value, (int, np.integer)) for value in values):
        values = values.astype(np.int64)
    strings = {value for value in values.tolist() if isinstance(value, str)} if values.dtype.kind in "UO" else set()
    for marker in (*_MISSING, "-1"):
        if marker in strings:
            raise InputError(
                f"y has the string '{marker}', which NumPy makes of {marker} among strings; use '' for unlabeled rows"
            )
    if values.dtype.kind == "f":
        finite = values[np.isfinite(values)]
        if np.isinf(values).any() or (finite != np.rint(finite)).any():
            raise InputError("Unknown label type: continuous; labels must be integers or strings")
    elif values.dtype.kind not in "biuOUST":
        raise InputError(f"Unknown label type: y has the type {values.dtype}; labels must be integers or strings")
    return values


def missing_labels(values: np.ndarray) -> np.ndarray:
    """Which rows of a `label_array` have no label, (n,) of bool."""
    if values.dtype.kind in "iuf":
        return np.asarray((values == UNLABELED) | np.isnan(values))
    if values.dtype.kind == "b":
        return np.zeros(len(values), dtype=bool)

    def is_missing(value: Any) -> bool:
        if isinstance(value, (str, bytes)):
            return len(value) == 0
        return str(value) in _MISSING or (isinstance(value, (int, float)) and value == UNLABELED)

    return np.array([is_missing(value) for value in values.tolist()], dtype=bool)


def white_of(images: np.ndarray) -> float:
    """The value of white in images: 1 for truth values, and for numbers up to 1; else 255."""
    if images.dtype.kind == "f":
        return 1.0 if images.size and images.max() <= 1 else 255.0
    return 1.0 if images.dtype.kind == "b" or (images.size and images.max() == 1) else 255.0


def image_array(X: Any) -> np.ndarray:  # noqa: N803
    """Images of one size, (n, h, w) or (n, h, w, c), as a checked array of numbers (n, h, w, c)."""
    if hasattr(X, "toarray"):
        raise InputError("X is a sparse matrix; images must be a dense array (n, height, width[, channels])")
    if isinstance(X, Iterator):
        raise ConfigError(f"X is a {type(X).__name__}; give all images at once, as an array or as list(X)")
    try:
        values = np.asarray(X)
        if values.dtype == object and values.ndim == 1:  # such as a column of images in a pandas DataFrame
            values = np.array(values.tolist())
        values = values.astype(np.float64) if values.dtype == object else values
    except ValueError as error:
        raise InputError(f"X is not an array of numbers ({error}); all images must have one size") from error
    if values.dtype.kind == "c":
        raise InputError("Complex data not supported: X must have integers in 0…255 or floats")
    if values.dtype.kind not in "biuf":
        raise InputError(f"X has the type {values.dtype}; images must have integers in 0…255 or floats")
    if values.ndim not in (3, 4):
        raise InputError(
            f"X has the shape {values.shape}; images are (n, height, width) or (n, height, width, channels). "
            f"Reshape your data, for example X.reshape(-1, 8, 8)"
        )
    values = values[..., None] if values.ndim == 3 else values
    first, *sides, last = values.shape[1:]
    if first in CHANNELS and last not in CHANNELS and first < min(*sides, last):
        raise InputError(f"X of shape {values.shape} looks channels-first; use `X.transpose(0, 2, 3, 1)`")
    if 0 in values.shape:
        raise InputError(f"Found array with 0 sample(s) or pixels: X has the shape {values.shape}")
    return values


def as_uint8(values: np.ndarray, white: float) -> np.ndarray:
    """Scale and round images from 0 (black) to `white` to uint8; integers above 1 are always in 0…255.

    `white` is what `white_of` found for the images of `fit`.
    """
    if values.dtype.kind == "b":
        return values.astype(np.uint8) * 255
    if values.dtype.kind in "iu" and values.max() == 1 and values.min() == 0:
        if white == 1:
            return values.astype(np.uint8) * 255
        warnings.warn(
            "X has only the integers 0 and 1, but in fit white was 255: these images are almost black; if 1 is "
            "white, multiply X by 255",
            stacklevel=4,
        )
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError("Input X contains NaN or infinity; images must have values from black to white")
    low, high = values.min(), values.max()
    white = white if values.dtype.kind == "f" else 255.0
    if low < 0 or high > white:
        raise InputError(
            f"X has values from {low:g} to {high:g}; they must be integers or floats in 0…255, or floats in "
            f"0…1{' as in fit' if white == 1 else ''}"
        )
    if values.dtype.kind != "f":
        return values.astype(np.uint8)
    if white == 255 and 0 < high <= 1:
        raise InputError("X has floats in 0…1, but in fit they were in 0…255; multiply X by 255")
    return np.rint(values * (255 / white)).astype(np.uint8)
