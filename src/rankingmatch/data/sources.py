"""Sources found by their name: a dataset, a folder or shards."""

from pathlib import Path

from rankingmatch.core.errors import ConfigError, setting, unknown_name
from rankingmatch.data.benchmarks import BENCHMARKS
from rankingmatch.data.dataset import Source
from rankingmatch.data.image_folder import read_folder
from rankingmatch.data.shards import is_sharded


def find_source(name: str, *, unlabeled: str | None = None, labels_csv: str | None = None) -> Source:
    """Find the dataset called `name`, or else the folder or shard at that path, which is scanned once.

    ``./name`` is always a path. Only with one of these, another folder (or shards) may have unlabeled images, and a CSV
    file the labels.
    """
    if not name:
        raise ConfigError(f"{setting('data')} is empty; give a dataset or a folder of images")
    if name in BENCHMARKS:
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


def dataset_title(name: str) -> str:
    """The `title` of the source of this name, whether or not the folder is there."""
    return BENCHMARKS[name].title if name in BENCHMARKS else Path(name).resolve().name
