"""Where images come from: a dataset known by name, a folder, or shards."""

from pathlib import Path
from typing import Any, Protocol

from rankingmatch.core.errors import ConfigError, setting, unknown_name
from rankingmatch.data.benchmarks import BENCHMARKS
from rankingmatch.data.dataset import Dataset, Progress, no_progress
from rankingmatch.data.image_folder import read_folder
from rankingmatch.data.shards import is_sharded


class Source(Protocol):
    """Where images come from: a dataset known by name, a folder, or shards.

    A source knows what it holds before images are read. `find_source` makes one.
    """

    @property
    def name(self) -> str:
        """The dataset in a configuration: its name, or the absolute path of the folder or shard."""

    @property
    def title(self) -> str:
        """The name in tables."""

    @property
    def description(self) -> str:
        """What it holds, in one or two lines."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of its images unless they are resized."""

    @property
    def side(self) -> int:
        """The side of its images in pixels, or the median of their shorter sides, before any resizing."""

    @property
    def classes(self) -> int:
        """The number of classes."""

    @property
    def training(self) -> int | None:
        """The number of training images; None if it is not known before they are read."""

    @property
    def evaluated(self) -> int:
        """The number of validation and test images."""

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of images, or shards."""

    def preset(self, image_size: int | None = None) -> dict[str, Any]:
        """The settings it brings; lengths in pixels (padding, cutout) follow the side to which images are resized."""

    def load(
        self,
        data_dir: Path | None = None,
        image_size: int | None = None,
        progress: Progress = no_progress,
        *,
        crop: bool = False,
    ) -> Dataset:
        """Read the images, into memory-mapped files the first time; DataError if they are missing or damaged.

        A named dataset's original files are in `data_dir`. Images are resized to squares of `image_size`, by default to
        `shape`; with `crop`, a folder's images keep their proportions and are cropped, instead of squeezed.
        """


def find_source(name: str, *, unlabeled: str | None = None, labels_csv: str | None = None) -> Source:
    """Find the dataset called `name`, or else the folder or shard at that path, which is scanned once.

    ``./name`` is always a path. Only with one of these, another folder (or shards) may have unlabeled images, and a CSV
    file the labels.
    """
    if not name:
        raise ConfigError(f"{setting('data')} is empty; give a dataset or a folder of images")
    if is_benchmark(name):
        for option, value in (("unlabeled", unlabeled), ("labels_csv", labels_csv)):
            if value is not None:
                raise ConfigError(f"{setting(option)} is for a folder of images, but {name} is a dataset; leave it out")
        return BENCHMARKS[name]
    if is_place(name):
        others = (None if path is None else Path(path).resolve() for path in (unlabeled, labels_csv))
        return read_folder(Path(name).resolve(), *others)
    if Path(name).is_file():
        raise ConfigError(f"{name} is a file; give a folder of images, or a shard, whose name ends in .tar or .parquet")
    if Path(name).name != name:
        raise ConfigError(f"there is no folder {name}")
    raise unknown_name("dataset", name, BENCHMARKS, " (there is no such folder, either)")


def is_place(name: str) -> bool:
    """Whether there is a folder or a shard at a path."""
    return Path(name).is_dir() or is_sharded(Path(name))


def is_benchmark(name: str) -> bool:
    """Whether a name is that of a dataset; any other name is a path."""
    return name in BENCHMARKS


def dataset_title(name: str) -> str:
    """The `title` of the source of this name, whether or not the folder is there."""
    return BENCHMARKS[name].title if is_benchmark(name) else Path(name).resolve().name
