"""Datasets known by name: where their files come from, how they are read, and each one's settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.core.errors import unknown_name
from rankingmatch.data import readers
from rankingmatch.data.cache import load_cached, resize_images
from rankingmatch.data.dataset import Dataset, Images, Progress, Source, no_progress
from rankingmatch.data.files import Distribution

# The defaults of the augmentations' lengths in pixels, which are for images of 32×32.
DEFAULT_LENGTHS = {"padding": 4, "cutout": 16}


@dataclass(frozen=True)
class Benchmark(Source):
    """A dataset known by name."""

    loader: Callable[[Path | None, int | None, Progress], Dataset]  # called with the arguments of `load`
    settings: Mapping[str, Any] = field(default_factory=dict)  # those that differ from the defaults

    def preset(self, image_size: int | None = None) -> dict[str, Any]:
        """The settings that differ from the defaults."""
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
        """Load the images, downloaded and decoded the first time; all have one shape, so that none is cropped."""
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


_CIFAR = "https://www.cs.toronto.edu/~kriz/cifar"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"

CIFAR10 = (
    Distribution(
        {f"{_CIFAR}-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
        partial(readers.read_cifar_python, classes=10),
        "cifar-10-batches-py",
    ),
    Distribution(
        {f"{_CIFAR}-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        partial(readers.read_cifar_binary, classes=10),
        "cifar-10-batches-bin",
    ),
)
CIFAR100 = (
    Distribution(
        {f"{_CIFAR}-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"},
        partial(readers.read_cifar_python, classes=100),
        "cifar-100-python",
    ),
    Distribution(
        {f"{_CIFAR}-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        partial(readers.read_cifar_binary, classes=100),
        "cifar-100-binary",
    ),
)
SVHN = Distribution(
    {
        "http://ufldl.stanford.edu/housenumbers/train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "http://ufldl.stanford.edu/housenumbers/test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
    readers.read_svhn,
)
STL10 = Distribution(
    {"http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz": "91f7769df0f17e558f3565bffb0c7dfb"},
    readers.read_stl10,
    "stl10_binary",
)
TINY_IMAGENET = Distribution(
    {"http://cs231n.stanford.edu/tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
    readers.read_tiny_imagenet,
    "tiny-imagenet-200",
)
_CLOTHES = "t-shirt/top,trouser,pullover,dress,coat,sandal,shirt,sneaker,bag,ankle boot"
FASHION_MNIST = Distribution(
    {
        f"{_FASHION}/train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        f"{_FASHION}/train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        f"{_FASHION}/t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        f"{_FASHION}/t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    partial(readers.read_idx, classes=tuple(_CLOTHES.split(","))),
)
# Where Debian's package dataset-fashion-mnist installs the files.
_DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")

# Paddings, cutouts, flips, validation images and batch sizes are those of the paper's Appendix D.
_ALL = (
    Benchmark(
        "digits",
        "Digits",
        "1,797 handwritten digits, 8×8 grayscale, 10 classes; part of scikit-learn, nothing to download",
        *((8, 8, 1), 10, 137 + 360),
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
        *((28, 28, 1), 10, 5000 + 10_000),
        partial(
            load_cached, name="fashion-mnist", distributions=(FASHION_MNIST,), other_directories=(_DEBIAN_FASHION,)
        ),
        {"labels": 250, "validation": 5000, "padding": 3, "cutout": 14},
    ),
    Benchmark(
        "cifar10",
        "CIFAR-10",
        "60,000 photographs, 32×32, 10 classes",
        *((32, 32, 3), 10, 5000 + 10_000),
        partial(load_cached, name="cifar10", distributions=CIFAR10),
        {"labels": 250, "validation": 5000},
    ),
    Benchmark(
        "cifar100",
        "CIFAR-100",
        "60,000 photographs, 32×32, 100 classes",
        *((32, 32, 3), 100, 5000 + 10_000),
        partial(load_cached, name="cifar100", distributions=CIFAR100),
        {"labels": 2500, "validation": 5000},
    ),
    Benchmark(
        "svhn",
        "SVHN",
        "99,289 house numbers, 32×32, 10 classes",
        *((32, 32, 3), 10, 7320 + 26_032),
        partial(load_cached, name="svhn", distributions=(SVHN,)),
        {"labels": 250, "validation": 7320, "flip": False},
    ),
    Benchmark(
        "stl10",
        "STL-10",
        "13,000 labeled and 100,000 unlabeled photographs, 96×96, 10 classes; ten given folds of 1,000 labels",
        *((96, 96, 3), 10, 4000 + 8000),
        partial(load_cached, name="stl10", distributions=(STL10,)),
        {"batch_size": 32, "padding": 12, "cutout": 48, "network": "wrn-37-2"},
    ),
    Benchmark(
        "tiny-imagenet",
        "Tiny ImageNet",
        "110,000 photographs, 64×64, 200 classes",
        *((64, 64, 3), 200, 10_000 + 10_000),
        partial(load_cached, name="tiny-imagenet", distributions=(TINY_IMAGENET,)),
        {"labels": 9000, "validation": 10_000, "padding": 8, "cutout": 32, "network": "wrn-37-2"},
    ),
)
BENCHMARKS: dict[str, Benchmark] = {one.name: one for one in _ALL}


def benchmark(name: str) -> Benchmark:
    """The dataset called `name`; ConfigError if there is none."""
    if name not in BENCHMARKS:
        raise unknown_name("dataset", name, BENCHMARKS)
    return BENCHMARKS[name]
