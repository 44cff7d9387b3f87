"""Readers of the benchmarks' original files.

Each takes `OriginalFiles`, which opens the files of an archive or a directory, and yields chunks of decoded images.
Nothing that a file contains is ever executed, and nothing is unpacked to disk.
"""

import contextlib
import gzip
import io
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, Protocol

import numpy as np

from rankingmatch.core.errors import DataError, require
from rankingmatch.data.dataset import UNLABELED
from rankingmatch.data.decode import open_image
from rankingmatch.data.plain_pickle import PlainArray, read_pickle

__all__ = [
    "Chunk",
    "DatasetStream",
    "OriginalFiles",
    "Reader",
    "read_cifar_binary",
    "read_cifar_python",
    "read_idx",
    "read_stl10",
    "read_svhn",
    "read_tiny_imagenet",
]


class OriginalFiles(Protocol):
    """The files of a dataset, in an archive or a directory."""

    def names(self) -> list[str]:
        """All file names, with forward slashes, relative to the archive or directory."""

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""


class Chunk(NamedTuple):
    """Consecutive images of a part of a dataset ("train", "validation", "test")."""

    part: str
    images: np.ndarray  # (n, h, w, c) uint8
    labels: np.ndarray  # (n,) int64, -1 = unlabeled


@dataclass(frozen=True)
class DatasetStream:
    """A dataset read chunk by chunk; `notes`, for the cache's metadata, are complete after the last chunk."""

    classes: tuple[str, ...]
    chunks: Iterable[Chunk]
    folds: tuple[np.ndarray, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)


Reader = Callable[[OriginalFiles], DatasetStream]

LARGEST = 2**28  # bytes of a file that is read at once; the largest original, CIFAR-100's training batch, has 155 MB


def _content(files: OriginalFiles, name: str, *, zipped: bool = False) -> bytes:
    """The whole content of a file, up to a limit: a few compressed bytes may expand to terabytes."""
    with files.open(name) as file, gzip.open(file) if zipped else contextlib.nullcontext(file) as plain:
        content = bytes(plain.read(LARGEST + 1))
    require(len(content) <= LARGEST, f"{name} has more than {LARGEST >> 20} MB, and the original has less")
    return content


def _text(files: OriginalFiles, name: str) -> str:
    try:
        return _content(files, name).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not text ({error.reason}); delete it and download it again") from error


# --- CIFAR ---------------------------------------------------------------------------------------------------


def read_cifar_python(
    files: OriginalFiles, *, folder: str, train: tuple[str, ...], test: str, meta: str, keys: tuple[bytes, bytes]
) -> DatasetStream:
    """Read CIFAR's Python version: `keys` name the labels in a batch and the class names in the meta file."""

    def chunks() -> Iterator[Chunk]:
        for part, names in (("train", train), ("test", (test,))):
            for name in names:
                yield Chunk(part, *_cifar_batch(files, f"{folder}/{name}", keys[0]))

    names = read_pickle(_content(files, f"{folder}/{meta}"), meta).get(keys[1])
    valid = isinstance(names, list) and all(isinstance(name, bytes) for name in names)
    require(valid, f"{meta} has no list of class names")
    return DatasetStream(tuple(name.decode(errors="replace") for name in names or ()), chunks())


def read_cifar_binary(
    files: OriginalFiles, *, folder: str, train: tuple[str, ...], test: str, meta: str, label_bytes: int
) -> DatasetStream:
    """Read CIFAR's binary version.

    A record has 1 (CIFAR-10) or 2 (CIFAR-100, of which the second is used) labels and 3072 pixels.
    """

    def chunks() -> Iterator[Chunk]:
        for part, names in (("train", train), ("test", (test,))):
            for name in names:
                content = _content(files, f"{folder}/{name}")
                size = label_bytes + 3072
                require(len(content) > 0 and len(content) % size == 0, f"{name} does not have records of {size} bytes")
                records = np.frombuffer(content, np.uint8).reshape(-1, size)
                labels = records[:, label_bytes - 1].astype(np.int64)
                yield Chunk(part, _cifar_images(records[:, label_bytes:]), labels)

    return DatasetStream(tuple(_text(files, f"{folder}/{meta}").split()), chunks())


def _cifar_batch(files: OriginalFiles, name: str, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    batch = read_pickle(_content(files, name), name)
    require(isinstance(batch.get(b"data"), PlainArray) and key in batch, f"{name} has no images or labels")
    pixels, labels = batch[b"data"].pixels(), batch[key]
    valid = isinstance(labels, list) and all(type(label) is int and 0 <= label < 256 for label in labels)
    require(valid, f"{name} has labels that are not integers below 256")
    require(pixels.shape == (len(labels), 3072), f"{name} has {pixels.shape} pixels for {len(labels)} labels")
    return _cifar_images(pixels), np.array(labels, dtype=np.int64)


def _cifar_images(rows: np.ndarray) -> np.ndarray:
    """(n, 3072) bytes, channel by channel → (n, 32, 32, 3)."""
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


# --- SVHN ----------------------------------------------------------------------------------------------------


def read_svhn(files: OriginalFiles) -> DatasetStream:
    """Read SVHN's cropped digits: X (32, 32, 3, n), and y with 10 for the digit 0."""

    def chunks() -> Iterator[Chunk]:
        for part in ("train", "test"):
            name = f"{part}_32x32.mat"
            try:
                images, labels = _svhn_variables(files, name)
            except DataError:
                raise
            except Exception as error:  # scipy raises many types for a damaged file
                raise DataError(f"{name} cannot be read ({error}); delete it and download it again") from error
            valid = images.dtype == np.uint8 and images.shape == (32, 32, 3, len(labels)) and labels.dtype.kind in "uif"
            require(valid, f"{name} has X of shape {images.shape} for {len(labels)} labels of type {labels.dtype}")
            yield Chunk(part, images.transpose(3, 0, 1, 2), labels.astype(np.int64) % 10)

    return DatasetStream(tuple("0123456789"), chunks())


def _svhn_variables(files: OriginalFiles, name: str) -> tuple[np.ndarray, np.ndarray]:
    """X and y, whose sizes are checked before memory is allocated for them."""
    from scipy.io import loadmat, whosmat

    with files.open(name) as file:
        shapes = {variable: shape for variable, shape, _ in whosmat(file)}
        require(shapes["X"] == (32, 32, 3, max(shapes["y"])), f"{name} has X of shape {shapes['X']}")
        require(3072 * shapes["X"][3] <= LARGEST, f"{name} has {shapes['X'][3]} images")
        file.seek(0)
        values = loadmat(file, variable_names=["X", "y"])
    return values["X"], values["y"].ravel()


# --- STL-10 --------------------------------------------------------------------------------------------------

STL10_BYTES = 3 * 96 * 96


def read_stl10(files: OriginalFiles) -> DatasetStream:
    """Read STL-10's binary version: labels from 1, images column by column; unlabeled images follow labeled ones."""
    folder = "stl10_binary"

    def chunks() -> Iterator[Chunk]:
        for part, name in (("train", "train"), ("test", "test"), ("train", "unlabeled")):
            labels = None
            if name != "unlabeled":
                labels = np.frombuffer(_content(files, f"{folder}/{name}_y.bin"), np.uint8).astype(np.int64) - 1
            yield from _stl10_chunks(files, f"{folder}/{name}_X.bin", part, labels)

    lines = [line.split() for line in _text(files, f"{folder}/fold_indices.txt").splitlines()]
    valid = all(word.isdecimal() and len(word) < 9 for line in lines for word in line)
    require(valid, "fold_indices.txt has words that are not row numbers")
    folds = tuple(np.array(line, dtype=np.int64) for line in lines)
    return DatasetStream(tuple(_text(files, f"{folder}/class_names.txt").split()), chunks(), folds)


def _stl10_chunks(files: OriginalFiles, name: str, part: str, labels: np.ndarray | None) -> Iterator[Chunk]:
    count = 0
    with files.open(name) as file:
        while content := file.read(1000 * STL10_BYTES):
            require(len(content) % STL10_BYTES == 0, f"{name} ends in the middle of an image")
            images = np.frombuffer(content, np.uint8).reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
            known = np.full(len(images), UNLABELED) if labels is None else labels[count : count + len(images)]
            require(len(known) == len(images), f"{name} has more images than labels")
            count += len(images)
            yield Chunk(part, images, known)
    require(labels is None or count == len(labels), f"{name} has fewer images than labels")


# --- Tiny ImageNet -------------------------------------------------------------------------------------------


def read_tiny_imagenet(files: OriginalFiles) -> DatasetStream:
    """Read Tiny ImageNet: 64×64 JPEGs, some of them grayscale; its validation images are the test set."""
    folder = "tiny-imagenet-200"

    def lines(name: str) -> list[str]:
        return _text(files, f"{folder}/{name}").splitlines()

    wnids = sorted(lines("wnids.txt"))
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    words = dict(line.split("\t", 1) for line in lines("words.txt") if "\t" in line)
    names = [words.get(wnid, wnid).split(",")[0] for wnid in wnids]
    # Some classes share a word ("crane", "bow tie"…); the wnid distinguishes them.
    classes = tuple(
        name if names.count(name) == 1 else f"{name} {wnid}" for name, wnid in zip(names, wnids, strict=True)
    )
    train = [(name, label_of[name.split("/")[2]]) for name in sorted(files.names()) if _is_training(name, label_of)]
    pairs = [line.split("\t")[:2] for line in lines("val/val_annotations.txt") if line]
    require(all(pair[1:] and pair[1] in label_of for pair in pairs), "val_annotations.txt has unknown classes")
    test = [(f"{folder}/val/images/{name}", label_of[wnid]) for name, wnid in pairs]
    require(bool(train) and bool(test), f"{folder} has no images")
    parts = (("train", train), ("test", test))
    return DatasetStream(classes, (chunk for part, pairs in parts for chunk in _jpeg_chunks(files, part, pairs)))


def _is_training(name: str, label_of: dict[str, int]) -> bool:
    """Whether a file is a training image: tiny-imagenet-200/train/WNID/images/NAME.JPEG."""
    parts = name.split("/")
    return len(parts) == 5 and parts[1] == "train" and parts[2] in label_of and parts[4].endswith(".JPEG")


def _jpeg_chunks(files: OriginalFiles, part: str, labeled: list[tuple[str, int]], size: int = 1000) -> Iterator[Chunk]:
    for start in range(0, len(labeled), size):
        chunk = labeled[start : start + size]
        images = np.stack([_jpeg(files, name) for name, _ in chunk])
        yield Chunk(part, images, np.array([label for _, label in chunk], dtype=np.int64))


def _jpeg(files: OriginalFiles, name: str) -> np.ndarray:
    try:
        image = open_image(io.BytesIO(_content(files, name)), name, ("JPEG",))
        require(image.size == (64, 64), f"{name} is {image.size[0]}×{image.size[1]}, not 64×64")
        return np.asarray(image.convert("RGB"))
    except DataError:
        raise
    except Exception as error:  # Pillow raises many types for a damaged file
        raise DataError(f"{name} cannot be decoded ({error}); delete the archive and download it again") from error


# --- idx (Fashion-MNIST) -------------------------------------------------------------------------------------


def read_idx(files: OriginalFiles, *, classes: tuple[str, ...]) -> DatasetStream:
    """Read idx files, the format of MNIST, gzipped or not."""

    def chunks() -> Iterator[Chunk]:
        for part, prefix in (("train", "train"), ("test", "t10k")):
            images = _idx(files, f"{prefix}-images-idx3-ubyte", dimensions=3)
            labels = _idx(files, f"{prefix}-labels-idx1-ubyte", dimensions=1).astype(np.int64)
            require(len(images) == len(labels), f"{prefix} has {len(images)} images for {len(labels)} labels")
            yield Chunk(part, images[..., None], labels)

    return DatasetStream(classes, chunks())


def _idx(files: OriginalFiles, name: str, dimensions: int) -> np.ndarray:
    zipped = f"{name}.gz" in files.names()
    try:
        content = _content(files, f"{name}.gz" if zipped else name, zipped=zipped)
        magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
    except (OSError, EOFError, struct.error, ValueError, zlib.error) as error:
        raise DataError(f"{name} cannot be read ({error}); delete it and download it again") from error
    require(magic == 0x800 + dimensions, f"{name} does not begin like an idx file of bytes")
    pixels = np.frombuffer(content, np.uint8, offset=4 * (1 + dimensions))
    require(len(pixels) == math.prod(shape), f"{name} has {len(pixels)} values, not {' × '.join(map(str, shape))}")
    return pixels.reshape(shape)
