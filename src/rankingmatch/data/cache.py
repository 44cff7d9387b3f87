"""The cache of decoded images: memory-mapped uint8 files, keyed by the places, sizes and times of their files."""

import contextlib
import hashlib
import json
import logging
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import platformdirs
import torch
from torch.nn import functional as F

from rankingmatch.core.errors import DataError, first_line, require, writing_remedy
from rankingmatch.data.dataset import UNLABELED, Dataset, Images, Progress
from rankingmatch.data.files import Distribution, find_files, open_files
from rankingmatch.data.readers import Chunk, DatasetStream

log = logging.getLogger(__name__)

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
    stamp = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in found.paths]
    directory = cache_directory() / f"{name}-{hashlib.md5(json.dumps(stamp).encode()).hexdigest()}-{FORMAT}"

    def decode() -> None:
        originals = dict(zip(found.distribution.names, found.distribution.files.values(), strict=True))
        for path in found.paths:
            if path.name in originals:
                with path.open("rb") as content:
                    if hashlib.file_digest(content, "md5").hexdigest() != originals[path.name]:
                        log.warning("%s is not the original file (its checksum differs); it is used anyway", path)
        with open_files(found) as files:
            write_cache(directory, found.distribution.reader(files))

    dataset, _ = read_or_write(directory, decode)
    if image_size is None or dataset.train.images.shape[1:3] == (image_size, image_size):
        return dataset
    resized = directory.with_name(f"{directory.name}-{image_size}")

    def chunks() -> Iterator[Chunk]:
        for name, part in (("train", dataset.train), ("test", dataset.test)):
            assert part is not None
            for start in range(0, len(part), RESIZED_AT_ONCE):
                rows = slice(start, start + RESIZED_AT_ONCE)
                yield Chunk(name, resize_images(part.images[rows], image_size), part.labels[rows])

    stream = DatasetStream(dataset.classes, chunks(), dataset.folds)
    return read_or_write(resized, lambda: write_cache(resized, stream))[0]


def cache_directory() -> Path:
    """The directory of decoded images."""
    return platformdirs.user_cache_path("rankingmatch") / "decoded"


def resize_images(images: np.ndarray, side: int) -> np.ndarray:
    """Images (n, side, side, c): each pixel is the mean of the area it covers; larger ones are interpolated."""
    planes = torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32))
    mode = "bicubic" if side > max(planes.shape[2:]) else "area"
    resized = F.interpolate(planes, (side, side), mode=mode).round().clamp(0, 255).to(torch.uint8)
    return resized.permute(0, 2, 3, 1).contiguous().numpy()


@contextlib.contextmanager
def _write_errors(directory: Path) -> Iterator[None]:
    """Turn the OSError of a failed write into a DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"the cache {directory} cannot be written ({error.strerror}); {writing_remedy(error)}, or choose another "
            "directory with the environment variable XDG_CACHE_HOME"
        ) from error


def write_cache(directory: Path, stream: DatasetStream) -> None:
    """Write a dataset chunk by chunk into a temporary directory, which is renamed when it is complete."""
    shapes: dict[str, tuple[int, ...]] = {}  # (h, w, c) of each part
    labels: dict[str, list[np.ndarray]] = {}
    files: dict[str, IO[bytes]] = {}
    with _write_errors(directory.parent), contextlib.ExitStack() as stack:
        directory.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix=".making-"))
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        with contextlib.ExitStack() as opened:
            for part, images, known in stream.chunks:
                if part not in files:
                    files[part] = opened.enter_context((temporary / f"{part}.u8").open("wb"))
                require(images.shape[1:] == shapes.setdefault(part, images.shape[1:]), "images differ in size")
                require(known.max(initial=-1) < len(stream.classes), "a label is larger than the number of classes")
                require(known.min(initial=-1) >= UNLABELED, "a label is negative")
                np.ascontiguousarray(images).tofile(files[part])
                labels.setdefault(part, []).append(known)
        for part, chunks in labels.items():
            np.save(temporary / f"{part}-labels.npy", np.concatenate(chunks))
        folds = [fold.tolist() for fold in stream.folds]
        metadata = {**stream.notes, "classes": stream.classes, "folds": folds, "shapes": shapes}
        (temporary / "about.json").write_text(json.dumps(metadata))
        # If another process has written the same cache meanwhile, this one is not needed.
        if not (directory / "about.json").exists():
            temporary.rename(directory)


def read_or_write(directory: Path, write: Callable[[], None]) -> tuple[Dataset, dict[str, Any]]:
    """The dataset in a cache and the notes about it; the cache is written first if it is missing or damaged."""
    if (directory / "about.json").exists():
        try:
            return _read_cache(directory)
        except (OSError, ValueError, TypeError, KeyError, EOFError, RecursionError) as error:
            log.warning("the cache %s is damaged (%s); the images are read again", directory, first_line(error))
    with _write_errors(directory):
        if directory.exists():
            shutil.rmtree(directory)
    write()
    return _read_cache(directory)


def _read_cache(directory: Path) -> tuple[Dataset, dict[str, Any]]:
    """Map a cache into memory; one of the errors above if a file is damaged or too short."""
    metadata: dict[str, Any] = json.loads((directory / "about.json").read_bytes())
    classes = tuple(metadata["classes"])

    def part(name: str) -> Images | None:
        if name not in metadata["shapes"]:
            return None
        labels = np.load(directory / f"{name}-labels.npy", mmap_mode="r")
        shape = (len(labels), *metadata["shapes"][name])
        path = directory / f"{name}.u8"
        if labels.dtype != np.int64 or labels.max(initial=-1) >= len(classes) or labels.min(initial=-1) < UNLABELED:
            raise ValueError(f"{name}-labels.npy has other values than labels")
        if path.stat().st_size != math.prod(shape):
            raise ValueError(f"{path.name} has {path.stat().st_size:,} bytes instead of {math.prod(shape):,}")
        return Images(np.memmap(path, np.uint8, "r", shape=shape), labels)

    folds = tuple(np.array(fold, dtype=np.int64) for fold in metadata["folds"])
    train = part("train")
    if train is None:
        raise ValueError("it has no training images")
    return Dataset(classes, train, part("validation"), part("test"), folds), metadata
