"""Datasets known by name, each with its settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.core.errors import unknown_name
from rankingmatch.data.cache import load_cached
from rankingmatch.data.dataset import Dataset, Images
from rankingmatch.data.distributions import CIFAR10, CIFAR100, FASHION_MNIST, STL10, SVHN, TINY_IMAGENET
from rankingmatch.data.progress import Progress, no_progress
from rankingmatch.data.resize import resize_images

__all__ = ["BENCHMARKS", "Benchmark", "benchmark"]

# The defaults of the augmentations' lengths in pixels, which are for images of 32×32.
DEFAULT_LENGTHS = {"padding": 4, "cutout": 16}


@dataclass(frozen=True)
class Benchmark:
    """A dataset known by name; a `Source`.

    Attributes
    ----------
    name
        The name in a configuration.
    title
        The name in tables.
    description
        What it holds, in one line.
    shape
        Height, width and channels of its images.
    classes
        The number of classes.
    evaluated
        The number of validation and test images.
    loader
        Loads it; called with the arguments of `load`.
    settings
        The settings that differ from the defaults.
    """

    name: str
    title: str
    description: str
    shape: tuple[int, int, int]
    classes: int
    evaluated: int
    loader: Callable[[Path | None, int | None, Progress], Dataset]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def side(self) -> int:
        """The side of its images in pixels."""
        return min(self.shape[:2])

    @property
    def training(self) -> int | None:
        """None: it is not known before the images are read."""
        return None

    @property
    def is_folder(self) -> bool:
        """False."""
        return False

    def preset(self, image_size: int | None = None) -> dict[str, Any]:
        """Return the settings that differ from the defaults.

        Parameters
        ----------
        image_size
            The side to which images are resized, if they are: lengths in pixels (padding, cutout) follow it.

        Returns
        -------
        dict
            Values of options by name.
        """
        if image_size is None:
            return dict(self.settings)
        lengths = {name: self.settings.get(name, default) for name, default in DEFAULT_LENGTHS.items()}
        scaled = {name: round(length * image_size / self.shape[0]) for name, length in lengths.items()}
        return {**self.settings, **scaled}

    def load(
        self,
        data_dir: Path | None = None,
        image_size: int | None = None,
        progress: Progress = no_progress,
        *,
        crop: bool = False,
    ) -> Dataset:
        """Load the images, which are downloaded and decoded the first time.

        Parameters
        ----------
        data_dir
            The directory of the original files; by default ``$RANKINGMATCH_DATA`` or the user's cache.
        image_size
            The side to which images are resized.
        progress
            Called as files are downloaded.
        crop
            Ignored: the images of a dataset all have one shape.

        Returns
        -------
        Dataset
            Images and their labels.

        Raises
        ------
        DataError
            If the files are damaged, or absent and cannot be downloaded.
        """
        return self.loader(data_dir, image_size, progress)


def load_digits(data_dir: Path | None, image_size: int | None, progress: Progress) -> Dataset:
    """Load the 1,797 handwritten digits of scikit-learn, 8×8; 360 of them, always the same, are the test set."""
    from sklearn.datasets import load_digits as from_sklearn

    digits = from_sklearn()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    images = images if image_size is None else resize_images(images, image_size)
    order = np.random.default_rng(0).permutation(len(images))
    everything = Images(images, digits.target.astype(np.int64))
    classes = tuple(str(name) for name in digits.target_names)
    return Dataset(classes, train=everything.take(order[360:]), test=everything.take(order[:360]))


# Where Debian's package dataset-fashion-mnist installs the files.
_DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")

# Paddings, cutouts, flips, validation images and batch sizes are those of the paper's Appendix D.
_ALL = (
    Benchmark(
        "digits",
        "Digits",
        "1,797 handwritten digits, 8×8 grayscale, 10 classes; part of scikit-learn, nothing to download",
        (8, 8, 1),
        10,
        137 + 360,
        load_digits,
        {
            "labels": 40,
            "validation": 137,
            "flip": False,
            "padding": 1,
            "cutout": 4,
            "network": "small",
            "steps": 1000,
            "batch_size": 32,
            "learning_rate": 0.1,  # short runs on tiny images allow more than the paper's 0.03
            "threads": 1,  # as fast as two for so little work, and the same result on any number of cores
        },
    ),
    Benchmark(
        "fashion-mnist",
        "Fashion-MNIST",
        "70,000 images of clothes, 28×28 grayscale, 10 classes",
        (28, 28, 1),
        10,
        5000 + 10_000,
        partial(load_cached, name="fashion-mnist", distributions=FASHION_MNIST, other_directories=(_DEBIAN_FASHION,)),
        {"labels": 250, "validation": 5000, "padding": 3, "cutout": 14},
    ),
    Benchmark(
        "cifar10",
        "CIFAR-10",
        "60,000 photographs, 32×32, 10 classes",
        (32, 32, 3),
        10,
        5000 + 10_000,
        partial(load_cached, name="cifar10", distributions=CIFAR10),
        {"labels": 250, "validation": 5000},
    ),
    Benchmark(
        "cifar100",
        "CIFAR-100",
        "60,000 photographs, 32×32, 100 classes",
        (32, 32, 3),
        100,
        5000 + 10_000,
        partial(load_cached, name="cifar100", distributions=CIFAR100),
        {"labels": 2500, "validation": 5000},
    ),
    Benchmark(
        "svhn",
        "SVHN",
        "99,289 house numbers, 32×32, 10 classes",
        (32, 32, 3),
        10,
        7320 + 26_032,
        partial(load_cached, name="svhn", distributions=SVHN),
        {"labels": 250, "validation": 7320, "flip": False},
    ),
    Benchmark(
        "stl10",
        "STL-10",
        "13,000 labeled and 100,000 unlabeled photographs, 96×96, 10 classes; ten given folds of 1,000 labels",
        (96, 96, 3),
        10,
        4000 + 8000,
        partial(load_cached, name="stl10", distributions=STL10),
        {"batch_size": 32, "padding": 12, "cutout": 48, "network": "wrn-37-2"},
    ),
    Benchmark(
        "tiny-imagenet",
        "Tiny ImageNet",
        "110,000 photographs, 64×64, 200 classes",
        (64, 64, 3),
        200,
        10_000 + 10_000,
        partial(load_cached, name="tiny-imagenet", distributions=TINY_IMAGENET),
        {"labels": 9000, "validation": 10_000, "padding": 8, "cutout": 32, "network": "wrn-37-2"},
    ),
)
BENCHMARKS: dict[str, Benchmark] = {one.name: one for one in _ALL}


def benchmark(name: str) -> Benchmark:
    """Return the dataset called `name`.

    Parameters
    ----------
    name
        A key of `BENCHMARKS`.

    Returns
    -------
    Benchmark
        The dataset.

    Raises
    ------
    ConfigError
        If there is no such dataset.
    """
    if name not in BENCHMARKS:
        raise unknown_name("dataset", name, BENCHMARKS)
    return BENCHMARKS[name]
