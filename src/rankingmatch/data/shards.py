"""Shards as a dataset: which files they are, what their names say about their images, and what they contain."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from rankingmatch.core.errors import DataError
from rankingmatch.core.names import printable
from rankingmatch.data.decode import image_suffixes
from rankingmatch.data.folder_scanner import HELD_OUT
from rankingmatch.data.image_files import StoredImage
from rankingmatch.data.parquet_shards import read_parquet
from rankingmatch.data.tar_shards import read_tar

__all__ = ["is_sharded", "part_of_shard", "read_shard", "scan_shards", "shards_at", "stored_images"]

READERS: dict[str, Callable[..., Iterator[tuple[StoredImage, str]]]] = {".tar": read_tar, ".parquet": read_parquet}
PARTS = {"train": "train", "labeled": "train", "unlabeled": "unlabeled", **HELD_OUT}  # by words in a shard's name


def shards_at(path: Path) -> list[Path]:
    """The shards at a path: the file itself, or all in a folder, sorted, if it has neither folders nor images."""
    if path.suffix.lower() in READERS and not path.is_dir():
        return [path] if os.path.lexists(path) else []
    shards = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                ending = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122
                if entry.name.startswith("."):
                    continue
                if entry.is_dir() or (ending and ending in image_suffixes()):
                    return []
                shards += [Path(entry.path)] if ending in READERS else []
    except (OSError, ValueError):  # a name with a null byte
        return []
    return sorted(shards)


def is_sharded(path: Path) -> bool:
    """Whether there are shards at a path, instead of a folder of images."""
    return bool(shards_at(path))


def part_of_shard(path: Path) -> str:
    """What the images of a shard are for, by the words in its name: "train", "unlabeled", "validation" or "test"."""
    found = {PARTS[word] for word in re.split(r"[\W\d_]+", path.stem.lower()) if word in PARTS}
    if len(found) > 1:
        names = " and ".join(sorted(found))
        raise DataError(f"the name of {printable(str(path))} says both {names}; rename it, for example to train-0.tar")
    return found.pop() if found else "train"


def scan_shards(place: Path, *, own_labels: bool = True) -> Iterator[tuple[str, StoredImage, str]]:
    """The images of the shards at a path in their order: the part, the image, and its label or an empty text.

    Unlabeled shards have no labels, and training shards only those in them, unless these are not to be read.
    """
    for shard in shards_at(place):
        part = part_of_shard(shard)
        labels = part in ("validation", "test") or (part == "train" and own_labels)
        for image, label in read_shard(shard, labels=labels):
            yield part, image, label


def read_shard(path: Path, *, labels: bool) -> Iterator[tuple[StoredImage, str]]:
    """The images of a shard in their order, each with its label, which is empty if there is none, or not `labels`."""
    return READERS[path.suffix.lower()](path, labels=labels)


def stored_images(path: Path) -> Iterator[StoredImage]:
    """All images of the shards at a path, without their labels."""
    for shard in shards_at(path):
        for image, _ in read_shard(shard, labels=False):
            yield image
