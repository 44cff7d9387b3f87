"""Datasets decoded once into memory-mapped uint8 files, keyed by the checksum of the files they came from."""

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
from rankingmatch.data.files import Form, Found, checksum, find, opened
from rankingmatch.data.formats import Block, Decoded
from rankingmatch.data.resize import resize_images
from rankingmatch.data.split import UNLABELED, Dataset, Images

FORMAT = 1  # of the cache: a new number leaves the old caches alone
RESIZED_AT_ONCE = 1000  # images: a large set is never in memory as a whole


def load_cached(
    name: str, forms: tuple[Form, ...], data_dir: Path | None, side: int | None, also: tuple[Path, ...] = ()
) -> Dataset:
    """A dataset from its original files, decoded, and resized, the first time and memory-mapped ever after."""
    found = find(name, forms, data_dir, also)
    place = cache_place()
    directory = place / f"{name}-{_key(found, place)}-{FORMAT}"
    if not (directory / "about.json").exists():
        with opened(found) as source:
            write_cache(directory, found.form.reader(source))
    dataset = read_cache(directory)
    if side is None or dataset.train.images.shape[1:3] == (side, side):
        return dataset
    resized = directory.with_name(f"{directory.name}-{side}")
    if not (resized / "about.json").exists():
        write_cache(resized, _resized(dataset, side))
    return read_cache(resized)


def cache_place() -> Path:
    """Where decoded images are kept."""
    return platformdirs.user_cache_path("rankingmatch") / "decoded"


def _resized(dataset: Dataset, side: int) -> Decoded:
    def blocks() -> Iterator[Block]:
        for name, part in (("train", dataset.train), ("test", dataset.test)):
            assert part is not None
            for start in range(0, len(part), RESIZED_AT_ONCE):
                rows = slice(start, start + RESIZED_AT_ONCE)
                yield Block(name, resize_images(part.images[rows], side), part.labels[rows])

    return Decoded(dataset.classes, blocks(), dataset.folds)


def _key(found: Found, place: Path) -> str:
    """The checksum of the files, remembered as long as their sizes and times stay the same."""
    stamp = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in found.paths]
    memory = place / "checksums.json"
    known: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        known = json.loads(memory.read_text())
    key = json.dumps(stamp)
    if key not in known:
        known[key] = checksum(found)
        with _failure_named(place):
            place.mkdir(parents=True, exist_ok=True)
            write_json(memory, known)
    return known[key]


@contextmanager
def _failure_named(directory: Path) -> Iterator[None]:
    """A failed write says so in one line."""
    try:
        yield
    except OSError as error:
        raise DataError(f"the cache {directory} cannot be written ({error.strerror}); free some space there") from error


def write_cache(directory: Path, decoded: Decoded) -> None:
    """Decode block by block into a temporary directory, which becomes the cache when it is whole."""
    with _failure_named(directory.parent):
        directory.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix=".making-"))
    try:
        with _failure_named(directory.parent), contextlib.ExitStack() as stack:
            files: dict[str, IO[bytes]] = {}
            shapes: dict[str, tuple[int, ...]] = {}
            labels: dict[str, list[np.ndarray]] = {}
            for part, images, known in decoded.blocks:
                if part not in files:
                    files[part] = stack.enter_context((temporary / f"{part}.u8").open("wb"))
                require(images.shape[1:] == shapes.setdefault(part, images.shape[1:]), "images differ in size")
                require(known.max(initial=-1) < len(decoded.classes), "a label is larger than the number of classes")
                require(known.min(initial=-1) >= UNLABELED, "a label is a negative number")
                np.ascontiguousarray(images).tofile(files[part])
                labels.setdefault(part, []).append(known)
        about = {
            **decoded.notes,
            "classes": decoded.classes,
            "folds": [fold.tolist() for fold in decoded.folds],
            "shapes": shapes,
        }
        with _failure_named(directory.parent):
            for part, pieces in labels.items():
                np.save(temporary / f"{part}-labels.npy", np.concatenate(pieces))
            (temporary / "about.json").write_text(json.dumps(about))
            # Another process may have made the same cache meanwhile: then this one is not needed.
            if not (directory / "about.json").exists():
                temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_about(directory: Path) -> dict[str, Any]:
    """What a cache says of itself: classes, folds, shapes, and the reader's notes."""
    about: dict[str, Any] = json.loads((directory / "about.json").read_text())
    return about


def read_cache(directory: Path) -> Dataset:
    """Map a cache into memory."""
    about = read_about(directory)

    def part(name: str) -> Images | None:
        if name not in about["shapes"]:
            return None
        labels = np.load(directory / f"{name}-labels.npy")
        shape = (len(labels), *about["shapes"][name])
        return Images(np.memmap(directory / f"{name}.u8", np.uint8, "r", shape=shape), labels)

    folds = tuple(np.array(fold, dtype=np.int64) for fold in about["folds"])
    train = part("train")
    assert train is not None
    return Dataset(tuple(about["classes"]), train, part("validation"), part("test"), folds)
