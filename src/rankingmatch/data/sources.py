"""Where images come from: a dataset known by name, a folder, or shards."""

from pathlib import Path
from typing import Any, Protocol

from rankingmatch.core.errors import ConfigError, setting, unknown_name
from rankingmatch.data.benchmarks import BENCHMARKS
from rankingmatch.data.dataset import Dataset
from rankingmatch.data.image_folder import read_folder
from rankingmatch.data.progress import Progress, no_progress
from rankingmatch.data.shards import is_sharded

__all__ = ["Source", "dataset_title", "find_source", "is_benchmark", "is_place"]


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
        """Return the settings it brings.

        Parameters
        ----------
        image_size
            The side to which images are resized, if they are: lengths in pixels (padding, cutout) follow it.

        Returns
        -------
        dict
            Values of options by name.
        """

    def load(
        self,
        data_dir: Path | None = None,
        image_size: int | None = None,
        progress: Progress = no_progress,
        *,
        crop: bool = False,
    ) -> Dataset:
        """Read the images.

        Parameters
        ----------
        data_dir
            The directory of a named dataset's original files; a folder ignores it.
        image_size
            The side to which images are resized; by default, `shape` has it.
        progress
            Called as files are downloaded and read.
        crop
            Whether a folder's images keep their proportions and are cropped, instead of squeezed to a square.

        Returns
        -------
        Dataset
            Memory-mapped images and their labels.

        Raises
        ------
        DataError
            If the files are missing, damaged or not what they should be.
        """


def find_source(name: str, *, unlabeled: str | None = None, labels_csv: str | None = None) -> Source:
    """Find the dataset called `name`, or else the folder or shard at that path, which is scanned once.

    Parameters
    ----------
    name
        A name in `BENCHMARKS`, or the path of a folder or of a shard; ``./name`` is always a path.
    unlabeled
        Another folder with unlabeled images, or shards; only with a folder or shards.
    labels_csv
        A CSV file with the labels of the images; only with a folder or shards.

    Returns
    -------
    Source
        A `Benchmark` or an `ImageFolder`.

    Raises
    ------
    ConfigError
        If there is neither such a dataset nor such a folder.
    DataError
        If the folder or a shard cannot be used.
    """
    _require_dataset(name)
    if not is_benchmark(name):
        others = (None if path is None else Path(path).resolve() for path in (unlabeled, labels_csv))
        return read_folder(Path(name).resolve(), *others)
    for option, value in (("unlabeled", unlabeled), ("labels_csv", labels_csv)):
        if value is not None:
            raise ConfigError(f"{setting(option)} is for a folder of images, but {name} is a dataset; leave it out")
    return BENCHMARKS[name]


def is_place(name: str) -> bool:
    """Whether there is a folder or a shard at a path."""
    return Path(name).is_dir() or is_sharded(Path(name))


def is_benchmark(name: str) -> bool:
    """Whether a name is that of a dataset; any other name is a path."""
    return name in BENCHMARKS


def dataset_title(name: str) -> str:
    """Return the name in tables of a dataset or folder, whether or not the folder is there.

    Parameters
    ----------
    name
        As for `find_source`.

    Returns
    -------
    str
        The `title` of the source.
    """
    return BENCHMARKS[name].title if is_benchmark(name) else Path(name).resolve().name


def _require_dataset(name: str) -> None:
    """Raise ConfigError if there is neither such a dataset nor such a folder or shard."""
    if not name:
        raise ConfigError(f"{setting('data')} is empty; give a dataset or a folder of images")
    if is_benchmark(name) or is_place(name):
        return
    if Path(name).is_file():
        raise ConfigError(f"{name} is a file; give a folder of images, or a shard, whose name ends in .tar or .parquet")
    if Path(name).name != name:
        raise ConfigError(f"there is no folder {name}")
    raise unknown_name("dataset", name, BENCHMARKS, " (there is no such folder, either)")
