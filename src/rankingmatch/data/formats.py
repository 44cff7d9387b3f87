"""Readers of the benchmarks' original files.

Each takes a `Source`, an opener of the files of an archive or a folder, and yields blocks of decoded images. Nothing a
file contains is ever executed, and nothing is unpacked to disk.
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
from rankingmatch.data.plain_pickle import PlainArray, read_pickle
from rankingmatch.data.split import UNLABELED


class Source(Protocol):
    """The files of a dataset, wherever they are."""

    def names(self) -> list[str]:
        """All file names, with forward slashes, relative to the archive or folder."""

    def open(self, name: str) -> IO[bytes]:
        """A file's content."""


class Block(NamedTuple):
    """Some images of a part of a dataset ("train", "test"), in order."""

    part: str
    images: np.ndarray  # (n, h, w, c) uint8
    labels: np.ndarray  # (n,) int64, -1 = unlabeled


@dataclass(frozen=True)
class Decoded:
    """A dataset about to be read: class names, blocks, given folds, and notes, complete after the last block."""

    classes: tuple[str, ...]
    blocks: Iterable[Block]
    folds: tuple[np.ndarray, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)


Reader = Callable[[Source], Decoded]

LARGEST = 2**28  # bytes of a file that is read at once; the largest original, CIFAR-100's training batch, has 155 MB


def _content(source: Source, name: str, *, zipped: bool = False) -> bytes:
    """A file as a whole; a few zipped bytes may say that they are terabytes, and are not believed."""
    with source.open(name) as file, gzip.open(file) if zipped else contextlib.nullcontext(file) as plain:
        content = bytes(plain.read(LARGEST + 1))
    require(len(content) <= LARGEST, f"{name} has more than {LARGEST >> 20} MB, and the original less")
    return content


def _text(source: Source, name: str) -> str:
    try:
        return _content(source, name).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is no text ({error.reason}); remove it and get it again") from error


# --- CIFAR ---------------------------------------------------------------------------------------------------


def _cifar_images(rows: np.ndarray) -> np.ndarray:
    """(n, 3072) bytes, channel by channel → (n, 32, 32, 3)."""
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _cifar_batch(source: Source, name: str, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    batch = read_pickle(_content(source, name), name)
    require(isinstance(batch.get(b"data"), PlainArray) and key in batch, f"{name} has no images or labels")
    pixels, numbers = batch[b"data"].pixels(), batch[key]
    plain = isinstance(numbers, list) and all(type(number) is int and 0 <= number < 256 for number in numbers)
    require(plain, f"{name} has labels that are no small numbers")
    labels = np.array(numbers, dtype=np.int64)
    require(pixels.shape == (len(labels), 3072), f"{name} has {pixels.shape} pixels for {len(labels)} labels")
    return _cifar_images(pixels), labels


def read_cifar_python(folder: str, train: tuple[str, ...], test: str, meta: str, keys: tuple[bytes, bytes]) -> Reader:
    """CIFAR's Python version: `keys` name the labels in a batch and the class names in the meta file."""

    def blocks(source: Source) -> Iterator[Block]:
        for part, names in (("train", train), ("test", (test,))):
            for name in names:
                yield Block(part, *_cifar_batch(source, f"{folder}/{name}", keys[0]))

    def read(source: Source) -> Decoded:
        names = read_pickle(_content(source, f"{folder}/{meta}"), meta).get(keys[1])
        good = isinstance(names, list) and all(isinstance(name, bytes) for name in names)
        require(good, f"{meta} has no list of class names")
        return Decoded(tuple(name.decode(errors="replace") for name in names or ()), blocks(source))

    return read


def read_cifar_binary(folder: str, train: tuple[str, ...], test: str, meta: str, label_bytes: int) -> Reader:
    """CIFAR's binary version: a record is 1 (CIFAR-10) or 2 (CIFAR-100, the second counts) labels and 3072 pixels."""

    def blocks(source: Source) -> Iterator[Block]:
        for part, names in (("train", train), ("test", (test,))):
            for name in names:
                content = _content(source, f"{folder}/{name}")
                size = label_bytes + 3072
                require(len(content) > 0 and len(content) % size == 0, f"{name} is not a row of {size}-byte records")
                records = np.frombuffer(content, np.uint8).reshape(-1, size)
                labels = records[:, label_bytes - 1].astype(np.int64)
                yield Block(part, _cifar_images(records[:, label_bytes:]), labels)

    def read(source: Source) -> Decoded:
        return Decoded(tuple(_text(source, f"{folder}/{meta}").split()), blocks(source))

    return read


# --- SVHN ----------------------------------------------------------------------------------------------------


def read_svhn(source: Source) -> Decoded:
    """SVHN's cropped digits: X (32, 32, 3, n) and y with 10 for the digit 0."""
    from scipy.io import loadmat, whosmat

    def blocks() -> Iterator[Block]:
        for part in ("train", "test"):
            name = f"{part}_32x32.mat"
            try:
                with source.open(name) as file:
                    shapes = {variable: shape for variable, shape, _ in whosmat(file)}
                    require(shapes["X"] == (32, 32, 3, max(shapes["y"])), f"{name} has X of shape {shapes['X']}")
                    require(3072 * shapes["X"][3] <= LARGEST, f"{name} has {shapes['X'][3]} images")
                    file.seek(0)
                    values = loadmat(file, variable_names=["X", "y"])
                images, labels = values["X"], values["y"].ravel()
            except DataError:
                raise
            except Exception as error:  # scipy raises many kinds for a damaged file
                raise DataError(f"{name} cannot be read ({error}); remove it and get it again") from error
            right = images.dtype == np.uint8 and images.shape == (32, 32, 3, len(labels)) and labels.dtype.kind in "uif"
            require(right, f"{name} has X of shape {images.shape} for {len(labels)} labels of type {labels.dtype}")
            yield Block(part, images.transpose(3, 0, 1, 2), labels.astype(np.int64) % 10)

    return Decoded(tuple("0123456789"), blocks())


# --- STL-10 --------------------------------------------------------------------------------------------------

STL10_BYTES = 3 * 96 * 96


def read_stl10(source: Source) -> Decoded:
    """STL-10's binary version: labels from 1, images column by column; the unlabeled ones follow the labeled."""
    folder = "stl10_binary"

    def blocks() -> Iterator[Block]:
        for part, name in (("train", "train"), ("test", "test"), ("train", "unlabeled")):
            labels = None
            if name != "unlabeled":
                labels = np.frombuffer(_content(source, f"{folder}/{name}_y.bin"), np.uint8).astype(np.int64) - 1
            yield from _stl10_blocks(source, f"{folder}/{name}_X.bin", part, labels)

    lines = [line.split() for line in _text(source, f"{folder}/fold_indices.txt").splitlines()]
    require(all(word.isdecimal() and len(word) < 9 for line in lines for word in line), "fold_indices.txt has no rows")
    folds = tuple(np.array(line, dtype=np.int64) for line in lines)
    return Decoded(tuple(_text(source, f"{folder}/class_names.txt").split()), blocks(), folds)


def _stl10_blocks(source: Source, name: str, part: str, labels: np.ndarray | None) -> Iterator[Block]:
    count = 0
    with source.open(name) as file:
        while content := file.read(1000 * STL10_BYTES):
            require(len(content) % STL10_BYTES == 0, f"{name} does not end at the end of an image")
            images = np.frombuffer(content, np.uint8).reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
            known = np.full(len(images), UNLABELED) if labels is None else labels[count : count + len(images)]
            require(len(known) == len(images), f"{name} has more images than labels")
            count += len(images)
            yield Block(part, images, known)
    require(labels is None or count == len(labels), f"{name} has {count} images for its labels")


# --- Tiny ImageNet -------------------------------------------------------------------------------------------


def read_tiny_imagenet(source: Source) -> Decoded:
    """Tiny ImageNet: JPEGs of 64×64, grey ones among them; its validation images are the test set."""
    folder = "tiny-imagenet-200"

    def text(name: str) -> list[str]:
        return _text(source, f"{folder}/{name}").splitlines()

    wnids = text("wnids.txt")
    number = {wnid: index for index, wnid in enumerate(sorted(wnids))}
    words = dict(line.split("\t", 1) for line in text("words.txt") if "\t" in line)
    classes = tuple(words.get(wnid, wnid).split(",")[0] for wnid in sorted(wnids))
    train = [(name, number[name.split("/")[2]]) for name in sorted(source.names()) if _is_training_image(name, number)]
    pairs = [line.split("\t")[:2] for line in text("val/val_annotations.txt") if line]
    require(all(pair[1:] and pair[1] in number for pair in pairs), "val_annotations.txt has images of no class")
    test = [(f"{folder}/val/images/{name}", number[wnid]) for name, wnid in pairs]
    require(bool(train) and bool(test), f"{folder} has no images")
    # Two classes share a word ("crane", "bow tie"…); the wnid tells them apart.
    names = tuple(
        word if classes.count(word) == 1 else f"{word} {wnid}"
        for word, wnid in zip(classes, sorted(wnids), strict=True)
    )
    parts = (("train", train), ("test", test))
    return Decoded(names, (block for part, files in parts for block in _jpeg_blocks(source, part, files)))


def _is_training_image(name: str, number: dict[str, int]) -> bool:
    words = name.split("/")
    return len(words) == 5 and words[1] == "train" and words[2] in number and words[4].endswith(".JPEG")


def _jpeg_blocks(source: Source, part: str, files: list[tuple[str, int]], size: int = 1000) -> Iterator[Block]:
    for start in range(0, len(files), size):
        some = files[start : start + size]
        images = np.stack([_jpeg(source, name) for name, _ in some])
        yield Block(part, images, np.array([label for _, label in some], dtype=np.int64))


def _jpeg(source: Source, name: str) -> np.ndarray:
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(_content(source, name)), formats=("JPEG",))
        require(image.size == (64, 64), f"{name} is {image.size[0]}×{image.size[1]}, not 64×64")
        return np.asarray(image.convert("RGB"))
    except DataError:
        raise
    except Exception as error:  # Pillow raises many kinds for a damaged file
        raise DataError(f"{name} cannot be decoded ({error}); remove the archive and get it again") from error


# --- idx (Fashion-MNIST) -------------------------------------------------------------------------------------


def read_idx(classes: tuple[str, ...]) -> Reader:
    """The idx files of MNIST and its kin, gzipped or not."""

    def blocks(source: Source) -> Iterator[Block]:
        for part, prefix in (("train", "train"), ("test", "t10k")):
            images = _idx(source, f"{prefix}-images-idx3-ubyte", dimensions=3)
            labels = _idx(source, f"{prefix}-labels-idx1-ubyte", dimensions=1).astype(np.int64)
            require(len(images) == len(labels), f"{prefix} has {len(images)} images for {len(labels)} labels")
            yield Block(part, images[..., None], labels)

    return lambda source: Decoded(classes, blocks(source))


def _idx(source: Source, name: str, dimensions: int) -> np.ndarray:
    zipped = f"{name}.gz" in source.names()
    try:
        content = _content(source, f"{name}.gz" if zipped else name, zipped=zipped)
        magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
    except (OSError, EOFError, struct.error, ValueError, zlib.error) as error:
        raise DataError(f"{name} cannot be read ({error}); remove it and get it again") from error
    require(magic == 0x800 + dimensions, f"{name} does not begin as an idx file of bytes")
    pixels = np.frombuffer(content, np.uint8, offset=4 * (1 + dimensions))
    require(len(pixels) == math.prod(shape), f"{name} has {len(pixels)} values, not {' × '.join(map(str, shape))}")
    return pixels.reshape(shape)
