"""Datasets by name, each with the settings it wants."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankingmatch.data.split import Dataset, Images
from rankingmatch.errors import unknown_name


@dataclass(frozen=True)
class Benchmark:
    """A named dataset: how to load it, and which settings differ from the defaults."""

    description: str
    load: Callable[[], Dataset]
    preset: Mapping[str, Any] = field(default_factory=dict)


def load_digits() -> Dataset:
    """1,797 handwritten digits, 8×8, from scikit-learn; 360 of them, always the same, are the test set."""
    from sklearn.datasets import load_digits as from_sklearn

    digits = from_sklearn()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    order = np.random.default_rng(0).permutation(len(images))
    everything = Images(images, digits.target.astype(np.int64))
    classes = tuple(str(name) for name in digits.target_names)
    return Dataset(classes, train=everything.take(order[360:]), test=everything.take(order[:360]))


BENCHMARKS: dict[str, Benchmark] = {
    "digits": Benchmark(
        "1,797 handwritten digits, 8×8 grey, 10 classes; inside scikit-learn, nothing to download",
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
}


def benchmark(name: str) -> Benchmark:
    """The dataset called `name`."""
    if name not in BENCHMARKS:
        raise unknown_name("dataset", name, BENCHMARKS)
    return BENCHMARKS[name]
