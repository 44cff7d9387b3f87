"""The cache of decoded images: memory-mapped uint8 files, keyed by the checksum of the files they came from."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import platformdirs

from rankingmatch.core.atomic import write_json
from rankingmatch.core.errors import DataError, require
from rankingmatch.data.dataset import UNLABELED, Dataset, Images
from rankingmatch.data.files import Distribution, FoundFiles, checksum, find_files, open_files
from rankingmatch.data.formats import Chunk, DatasetStream
from rankingmatch.data.progress import Progress
from rankingmatch.data.resize import resize_images

__all__ = ["FORMAT", "cache_directory", "load_cached", "read_cache", "read_metadata", "write_cache"]

FORMAT = 1  # of the cache, part of a directory's name: increase it if the format changes
RESIZED_AT_ONCE = 1000  # images, so that a large dataset is never in memory as a whole


def load_cached(
    data_dir: Path | None,
    image_size: int | None,
    progress: Progress,
    *,
    name: str,
    distributions: tuple[Distribution, ...],
    other_directories: tuple[Path, ...] = (),
) -> Dataset:
    """Load a dataset from its original files: decoded and resized the first time, memory-mapped from then on."""
    found = find_files(name, distributions, data_dir, other_directories, progress)
    directory = cache_directory() / f"{name}-{_key(found)}-{FORMAT}"
    if not (directory / "about.json").exists():
        with open_files(found) as files:
            write_cache(directory, found.distribution.reader(files))
    dataset = read_cache(directory)
    if image_size is None or dataset.train.images.shape[1:3] == (image_size, image_size):
        return dataset
    resized = directory.with_name(f"{directory.name}-{image_size}")
    if not (resized / "about.json").exists():
        write_cache(resized, _resized(dataset, image_size))
    return read_cache(resized)


def cache_directory() -> Path:
    """The directory of decoded images."""
    return platformdirs.user_cache_path("rankingmatch") / "decoded"


def _resized(dataset: Dataset, side: int) -> DatasetStream:
    def chunks() -> Iterator[Chunk]:
        for name, part in (("train", dataset.train), ("test", dataset.test)):
            assert part is not None
            for start in range(0, len(part), RESIZED_AT_ONCE):
                rows = slice(start, start + RESIZED_AT_ONCE)
                yield Chunk(name, resize_images(part.images[rows], side), part.labels[rows])

    return DatasetStream(dataset.classes, chunks(), dataset.folds)


def _key(found: FoundFiles) -> str:
    """The checksum of the files, stored as long as their sizes and times stay the same."""
    stamp = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in found.paths]
    path = cache_directory() / "checksums.json"
    checksums: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        checksums = json.loads(path.read_text())
    key = json.dumps(stamp)
    if key not in checksums:
        checksums[key] = checksum(found)
        with _write_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, checksums)
    return checksums[key]


@contextmanager
def _write_errors(directory: Path) -> Iterator[None]:
    """Turn the OSError of a failed write into a DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(f"the cache {directory} cannot be written ({error.strerror}); free some space there") from error


def write_cache(directory: Path, stream: DatasetStream) -> None:
    """Write a dataset chunk by chunk into a temporary directory, which is renamed when it is complete."""
    with _write_errors(directory.parent):
        directory.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix=".making-"))
    try:
        with _write_errors(directory.parent):
            shapes = _write_chunks(temporary, stream)
            metadata = {
                **stream.notes,
                "classes": stream.classes,
                "folds": [fold.tolist() for fold in stream.folds],
                "shapes": shapes,
            }
            (temporary / "about.json").write_text(json.dumps(metadata))
            # If another process has written the same cache meanwhile, this one is not needed.
            if not (directory / "about.json").exists():
                temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_chunks(directory: Path, stream: DatasetStream) -> dict[str, tuple[int, ...]]:
    """Write the images and labels of each part; the result has the shape of its images, (h, w, c)."""
    shapes: dict[str, tuple[int, ...]] = {}
    labels: dict[str, list[np.ndarray]] = {}
    with contextlib.ExitStack() as stack:
        files: dict[str, IO[bytes]] = {}
        for part, images, known in stream.chunks:
            if part not in files:
                files[part] = stack.enter_context((directory / f"{part}.u8").open("wb"))
            require(images.shape[1:] == shapes.setdefault(part, images.shape[1:]), "images differ in size")
            require(known.max(initial=-1) < len(stream.classes), "a label is larger than the number of classes")
            require(known.min(initial=-1) >= UNLABELED, "a label is negative")
            np.ascontiguousarray(images).tofile(files[part])
            labels.setdefault(part, []).append(known)
    for part, chunks in labels.items():
        np.save(directory / f"{part}-labels.npy", np.concatenate(chunks))
    return shapes


def read_metadata(directory: Path) -> dict[str, Any]:
    """Read the classes, folds, shapes and notes of a cache."""
    metadata: dict[str, Any] = json.loads((directory / "about.json").read_text())
    return metadata


def read_cache(directory: Path) -> Dataset:
    """Map a cache into memory."""
    metadata = read_metadata(directory)

    def part(name: str) -> Images | None:
        if name not in metadata["shapes"]:
            return None
        labels = np.load(directory / f"{name}-labels.npy")
        shape = (len(labels), *metadata["shapes"][name])
        return Images(np.memmap(directory / f"{name}.u8", np.uint8, "r", shape=shape), labels)

    folds = tuple(np.array(fold, dtype=np.int64) for fold in metadata["folds"])
    train = part("train")
    assert train is not None
    return Dataset(tuple(metadata["classes"]), train, part("validation"), part("test"), folds)
