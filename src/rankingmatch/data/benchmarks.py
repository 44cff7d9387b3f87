"""Datasets by name, each with the settings it wants."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.core.errors import unknown_name
from rankingmatch.data import formats
from rankingmatch.data.cache import load_cached
from rankingmatch.data.files import File, Form
from rankingmatch.data.resize import resize_images
from rankingmatch.data.split import Dataset, Images


@dataclass(frozen=True)
class Benchmark:
    """A named dataset: how to load it, and which settings differ from the defaults."""

    title: str
    description: str
    shape: tuple[int, int, int]  # height, width and channels of its images
    classes: int
    evaluated: int  # validation and test images
    loader: Callable[[Path | None, int | None], Dataset]
    preset: Mapping[str, Any] = field(default_factory=dict)

    def load(self, data_dir: Path | None = None, image_size: int | None = None) -> Dataset:
        """The dataset, from files in a place if that is said, with square images of a size if that is said."""
        return self.loader(data_dir, image_size)


def load_digits(_: Path | None, side: int | None) -> Dataset:
    """1,797 handwritten digits, 8×8, from scikit-learn; 360 of them, always the same, are the test set."""
    from sklearn.datasets import load_digits as from_sklearn

    digits = from_sklearn()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    images = images if side is None else resize_images(images, side)
    order = np.random.default_rng(0).permutation(len(images))
    everything = Images(images, digits.target.astype(np.int64))
    classes = tuple(str(name) for name in digits.target_names)
    return Dataset(classes, train=everything.take(order[360:]), test=everything.take(order[:360]))


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

CIFAR10 = (
    Form(
        (File(f"{_TORONTO}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
        formats.read_cifar_python(
            "cifar-10-batches-py", _BATCHES, "test_batch", "batches.meta", (b"labels", b"label_names")
        ),
        "cifar-10-batches-py",
    ),
    Form(
        (File(f"{_TORONTO}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
        formats.read_cifar_binary(
            "cifar-10-batches-bin",
            tuple(f"{name}.bin" for name in _BATCHES),
            "test_batch.bin",
            "batches.meta.txt",
            label_bytes=1,
        ),
        "cifar-10-batches-bin",
    ),
)
CIFAR100 = (
    Form(
        (File(f"{_TORONTO}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
        formats.read_cifar_python(
            "cifar-100-python", ("train",), "test", "meta", (b"fine_labels", b"fine_label_names")
        ),
        "cifar-100-python",
    ),
    Form(
        (File(f"{_TORONTO}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
        formats.read_cifar_binary(
            "cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt", label_bytes=2
        ),
        "cifar-100-binary",
    ),
)
SVHN = (
    Form(
        (
            File("http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
            File("http://ufldl.stanford.edu/housenumbers/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
        ),
        formats.read_svhn,
    ),
)
STL10 = (
    Form(
        (File("http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz", "91f7769df0f17e558f3565bffb0c7dfb"),),
        formats.read_stl10,
        "stl10_binary",
    ),
)
TINY_IMAGENET = (
    Form(
        (File("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),),
        formats.read_tiny_imagenet,
        "tiny-imagenet-200",
    ),
)
FASHION_CLASSES = (
    *("t-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
FASHION_MNIST = (
    Form(
        (
            File(f"{_FASHION}/train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            File(f"{_FASHION}/train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
            File(f"{_FASHION}/t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
            File(f"{_FASHION}/t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        formats.read_idx(FASHION_CLASSES),
    ),
)
# Where Debian's package dataset-fashion-mnist puts the files.
_DEBIAN_FASHION = Path("/usr/share/datasets/fashion-mnist")


def _from_files(name: str, forms: tuple[Form, ...], *also: Path) -> Callable[[Path | None, int | None], Dataset]:
    return lambda data_dir, side: load_cached(name, forms, data_dir, side, also)


# Paddings, cutouts, flips, validation images and batch sizes are those of the paper's Appendix D.
BENCHMARKS: dict[str, Benchmark] = {
    "digits": Benchmark(
        "Digits",
        "1,797 handwritten digits, 8×8 grey, 10 classes; inside scikit-learn, nothing to download",
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
            "learning_rate": 0.1,  # short runs on tiny images bear more than the paper's 0.03
            "threads": 1,  # as fast as two on so little work, and the same result on any number of cores
        },
    ),
    "fashion-mnist": Benchmark(
        "Fashion-MNIST",
        "70,000 pictures of clothes, 28×28 grey, 10 classes",
        (28, 28, 1),
        10,
        5000 + 10_000,
        _from_files("fashion-mnist", FASHION_MNIST, _DEBIAN_FASHION),
        {"labels": 250, "validation": 5000, "padding": 3, "cutout": 14},
    ),
    "cifar10": Benchmark(
        "CIFAR-10",
        "60,000 photographs, 32×32, 10 classes",
        (32, 32, 3),
        10,
        5000 + 10_000,
        _from_files("cifar10", CIFAR10),
        {"labels": 250, "validation": 5000},
    ),
    "cifar100": Benchmark(
        "CIFAR-100",
        "60,000 photographs, 32×32, 100 classes",
        (32, 32, 3),
        100,
        5000 + 10_000,
        _from_files("cifar100", CIFAR100),
        {"labels": 2500, "validation": 5000},
    ),
    "svhn": Benchmark(
        "SVHN",
        "99,289 house numbers, 32×32, 10 classes",
        (32, 32, 3),
        10,
        7320 + 26_032,
        _from_files("svhn", SVHN),
        {"labels": 250, "validation": 7320, "flip": False},
    ),
    "stl10": Benchmark(
        "STL-10",
        "13,000 labeled and 100,000 unlabeled photographs, 96×96, 10 classes; ten given folds of 1,000 labels",
        (96, 96, 3),
        10,
        4000 + 8000,
        _from_files("stl10", STL10),
        {"batch_size": 32, "padding": 12, "cutout": 48, "network": "wrn-37-2"},
    ),
    "tiny-imagenet": Benchmark(
        "Tiny ImageNet",
        "110,000 photographs, 64×64, 200 classes",
        (64, 64, 3),
        200,
        10_000 + 10_000,
        _from_files("tiny-imagenet", TINY_IMAGENET),
        {"labels": 9000, "validation": 10_000, "padding": 8, "cutout": 32, "network": "wrn-37-2"},
    ),
}


def benchmark(name: str) -> Benchmark:
    """The dataset called `name`."""
    if name not in BENCHMARKS:
        raise unknown_name("dataset", name, BENCHMARKS)
    return BENCHMARKS[name]
