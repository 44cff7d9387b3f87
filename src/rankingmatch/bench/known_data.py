"""Datasets and folders whose labels are known, as pools for simulated labeling."""

from pathlib import Path

import numpy as np

from rankingmatch.bench.simulated_labeling import Pool, make_pool
from rankingmatch.core.errors import DataError
from rankingmatch.data import Source, find_source
from rankingmatch.labeling.features import SIDE, feature_function

__all__ = ["known_pool"]

SMALLEST = 64  # the side in pixels below which images are not photographs for the network
AT_ONCE = 64


def known_pool(data: str, data_dir: Path | None = None) -> Pool:
    """Compute the features of a dataset or folder.

    Parameters
    ----------
    data : str
        The name of a dataset, or the path of a folder with labels.
    data_dir : pathlib.Path, optional
        The directory of the files of a dataset.

    Returns
    -------
    Pool
        Its training images that have labels, and its test images. The features of photographs come from a pretrained
        network; those of small images are their pixels.

    Raises
    ------
    DataError
        If there are no test images.
    """
    source = find_source(data)
    small = _is_small(source)
    dataset = source.load(data_dir, None if small else SIDE, crop=not small)
    if dataset.test is None:
        raise DataError(f"{source.title} has no test images to measure the error with; use another folder or dataset")
    train = dataset.train.take(np.flatnonzero(dataset.train.labels >= 0))
    compute = _pixels if small else _network_features
    return make_pool(
        source.title,
        len(dataset.classes),
        compute(train.images),
        train.labels,
        compute(dataset.test.images),
        dataset.test.labels,
    )


def _is_small(source: Source) -> bool:
    return source.side < SMALLEST or source.shape[2] != 3


def _pixels(images: np.ndarray) -> np.ndarray:
    """(n, h, w, c) → (n, h·w·c)."""
    return images.reshape(len(images), -1).astype(np.float32)


def _network_features(images: np.ndarray) -> np.ndarray:
    """(n, h, w, 3) uint8 → (n, 1280)."""
    compute = feature_function()
    return np.concatenate([compute(images[start : start + AT_ONCE]) for start in range(0, len(images), AT_ONCE)])
