"""Labels and images as people have them in arrays, as the house has them: class numbers, -1, uint8."""

from typing import Any

import numpy as np
from sklearn.utils import column_or_1d

from rankingmatch.core.errors import InputError
from rankingmatch.data import UNLABELED

_MISSING = ("None", "nan", "<NA>", "NaT")  # as None, NaN and the missing values of pandas write themselves


def encode_labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes, and for each row the number of its class or -1.

    Unlabeled is -1 or NaN among numbers; None, "" or NaN among texts.
    """
    values = label_array(y)
    known = ~missing_labels(values)
    if not known.any():
        raise InputError("no row of y has a label; label some images of each class")
    try:
        classes, numbers = np.unique(values[known], return_inverse=True)
    except TypeError as error:
        raise InputError(f"y mixes labels that cannot be compared ({error}); use either numbers or texts") from error
    if classes.dtype == object:
        classes = np.array(classes.tolist())  # plain integers or texts, if they are that
    encoded = np.full(len(values), UNLABELED, dtype=np.int64)
    encoded[known] = numbers
    return classes, encoded


def label_array(y: Any) -> np.ndarray:
    """`y` as a one-dimensional array of numbers, texts, or objects where a list mixes texts with None or NaN."""
    if y is None:
        raise InputError("this estimator requires y to be passed, but the target y is None; use -1 for unlabeled rows")
    values = y if hasattr(y, "dtype") else np.array(y, dtype=object)
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = column_or_1d(values, warn=True)
    if values.ndim != 1:
        raise InputError(f"y has the shape {values.shape}; it must have one label per image, (n,)")
    if values.dtype == object and all(isinstance(v, (int, np.integer)) for v in values):
        values = values.astype(np.int64)
    texts = {value for value in values.tolist() if isinstance(value, str)} if values.dtype.kind in "UO" else set()
    if trap := [word for word in ("nan", "-1") if word in texts]:
        raise InputError(
            f"y has the text '{trap[0]}', which NumPy makes of {trap[0]} among texts; mark unlabeled rows by ''"
        )
    if values.dtype.kind == "f":
        finite = values[np.isfinite(values)]
        if np.isinf(values).any() or (finite != np.rint(finite)).any():
            raise InputError("Unknown label type: continuous; y must have classes: whole numbers or texts")
    elif values.dtype.kind not in "biuOUST":
        raise InputError(f"Unknown label type: y has the type {values.dtype}; it must have whole numbers or texts")
    return values


def missing_labels(values: np.ndarray) -> np.ndarray:
    """Which rows of a label array have no label: (n,) of bool."""
    if values.dtype.kind in "iuf":
        return np.asarray((values == UNLABELED) | np.isnan(values))
    if values.dtype.kind == "b":
        return np.zeros(len(values), dtype=bool)
    return np.array([_is_missing(value) for value in values.tolist()], dtype=bool)


def _is_missing(value: Any) -> bool:
    if isinstance(value, (str, bytes)):
        return len(value) == 0
    return str(value) in _MISSING or (isinstance(value, (int, float)) and value == UNLABELED)


def white_of(images: np.ndarray) -> float:
    """The value that stands for white: 1 for floats that nowhere exceed it, else 255."""
    return 1.0 if images.dtype.kind == "f" and images.size and images.max() <= 1 else 255.0


def image_array(X: Any, name: str = "X") -> np.ndarray:  # noqa: N803
    """`X` as (n, h, w, c) numbers, checked; (n, h, w) becomes one channel."""
    if hasattr(X, "toarray"):
        raise InputError(f"{name} is a sparse matrix; images are dense arrays (n, height, width[, channels])")
    try:
        values = np.asarray(X)
        values = values.astype(np.float64) if values.dtype == object else values
    except ValueError as error:
        raise InputError(f"{name} is no array of numbers ({error}); are all images of one size?") from error
    if values.dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} must have whole numbers 0…255 or floats")
    if values.dtype.kind not in "biuf":
        raise InputError(f"{name} has the type {values.dtype}; images have whole numbers 0…255 or floats")
    if values.ndim not in (3, 4):
        raise InputError(
            f"{name} has the shape {values.shape}; images are (n, height, width) or (n, height, width, channels). "
            f"Reshape your data, such as {name}.reshape(-1, 8, 8)"
        )
    values = values[..., None] if values.ndim == 3 else values
    if 0 in values.shape:
        raise InputError(f"Found array with 0 sample(s) or pixels: {name} has the shape {values.shape}")
    return values


def as_uint8(values: np.ndarray, white: float, name: str = "X") -> np.ndarray:
    """Images whose white is 1 or 255 as uint8, rounded; InputError for values beyond black and white."""
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "b":
        return values.astype(np.uint8) * 255
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(f"Input {name} contains NaN or infinity; images have values from black to white")
    low, high = values.min(), values.max()
    white = white if values.dtype.kind == "f" else 255.0
    if low < 0 or high > white:
        raise InputError(
            f"{name} has values from {low:g} to {high:g}; they must be whole numbers or floats in 0…255, or floats in "
            f"0…1{' as in fit' if white == 1 else ''}"
        )
    if values.dtype.kind != "f":
        return values.astype(np.uint8)
    if white == 255 and high <= 1 and (values != np.rint(values)).any():
        raise InputError(f"{name} has floats in 0…1, but those of fit were in 0…255; multiply {name} by 255")
    return np.rint(values * (255 / white)).astype(np.uint8)
