"""Readers of the benchmarks' original files.

Each takes `OriginalFiles`, which opens the files of an archive or a directory, and yields chunks of decoded images.
Nothing that a file contains is ever executed, and nothing is unpacked to disk.
"""

import contextlib
import gzip
import io
import math
import pickle
import pickletools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from rankingmatch.core.errors import DataError, require
from rankingmatch.data.dataset import UNLABELED
from rankingmatch.data.decode import open_image

LARGEST = 2**28  # bytes of a file that is read at once; the largest original, CIFAR-100's training batch, has 155 MB


@dataclass(frozen=True)
class OriginalFiles:
    """The files of a dataset in an archive or a directory: each one's name, and what `opened` opens it by."""

    place: Path
    members: Mapping[str, Any]
    opened: Callable[[Any], IO[bytes] | None]

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        try:
            file = self.opened(self.members[name])
        except KeyError:
            raise DataError(
                f"{self.place} has no {name}, so it is not the original; delete it and download it again"
            ) from None
        except OSError as error:
            raise DataError(f"{self.place}: {name} cannot be read ({error.strerror})") from error
        assert file is not None  # tarfile has None for folders, which are no members
        return file

    def content(self, name: str, *, zipped: bool = False) -> bytes:
        """The whole content of a file, up to a limit: a few compressed bytes may expand to terabytes."""
        with self.open(name) as file, gzip.open(file) if zipped else contextlib.nullcontext(file) as plain:
            content = bytes(plain.read(LARGEST + 1))
        require(len(content) <= LARGEST, f"{name} has more than {LARGEST >> 20} MB, and the original has less")
        return content

    def lines(self, name: str) -> list[str]:
        """The lines of a text file."""
        with _damage(name):  # not UTF-8
            return self.content(name).decode().splitlines()


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


@contextlib.contextmanager
def _damage(name: str) -> Iterator[None]:
    """Whatever a library raises for a damaged file is a DataError."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{name} cannot be read ({error}); delete it and download it again") from error


# The training batches, the test batch and the class names, and what labels are called.
CIFAR_FILES = {
    10: (tuple(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta", "label"),
    100: (("train",), "test", "meta", "fine_label"),
}


def read_cifar_python(files: OriginalFiles, *, classes: int) -> DatasetStream:
    """Read CIFAR's Python version: a pickle for each batch."""
    *_, meta, kind = CIFAR_FILES[classes]

    def batch(name: str) -> tuple[np.ndarray, np.ndarray]:
        values = read_pickle(files.content(name), name)
        labels: Any = values.get(f"{kind}s".encode())
        pixels: Any = values.get(b"data")
        require(isinstance(pixels, PlainArray) and isinstance(labels, list), f"{name} has no images or labels")
        valid = all(type(label) is int and 0 <= label < 256 for label in labels)
        require(valid, f"{name} has labels that are not integers below 256")
        rows = pixels.array()
        require(rows.shape == (len(labels), 3072), f"{name} has {rows.shape} pixels for {len(labels)} labels")
        return rows, np.array(labels, dtype=np.int64)

    names: Any = read_pickle(files.content(meta), meta).get(f"{kind}_names".encode())
    valid = isinstance(names, list) and all(isinstance(name, bytes) for name in names)
    require(valid, f"{meta} has no list of class names")
    return DatasetStream(tuple(name.decode(errors="replace") for name in names), _cifar_chunks(classes, batch))


def read_cifar_binary(files: OriginalFiles, *, classes: int) -> DatasetStream:
    """Read CIFAR's binary version.

    A record has 1 (CIFAR-10) or 2 (CIFAR-100, of which the second is used) labels and 3072 pixels.
    """
    label_bytes, meta = (1, "batches.meta.txt") if classes == 10 else (2, "fine_label_names.txt")

    def batch(name: str) -> tuple[np.ndarray, np.ndarray]:
        content, size = files.content(f"{name}.bin"), label_bytes + 3072
        require(len(content) > 0 and len(content) % size == 0, f"{name} does not have records of {size} bytes")
        records = np.frombuffer(content, np.uint8).reshape(-1, size)
        return records[:, label_bytes:], records[:, label_bytes - 1].astype(np.int64)

    return DatasetStream(tuple(" ".join(files.lines(meta)).split()), _cifar_chunks(classes, batch))


def _cifar_chunks(classes: int, batch: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> Iterator[Chunk]:
    """The batches, whose rows (n, 3072) have the pixels channel by channel."""
    train, test, *_ = CIFAR_FILES[classes]
    for part, names in (("train", train), ("test", (test,))):
        for name in names:
            rows, labels = batch(name)
            yield Chunk(part, rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels)


class PlainArray:
    """Replaces a NumPy array in a pickle: keeps its state as data, which is checked before it becomes an array."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def array(self) -> np.ndarray:
        """The content as a contiguous uint8 array; DataError if it is of another type."""
        try:
            _, shape, dtype, fortran, content = self.state
            plain = isinstance(dtype, _DType) and dtype.code in ("u1", b"u1") and not fortran
            require(plain, "an array is not of bytes")
            return np.frombuffer(content, np.uint8).reshape(shape)
        except (ValueError, TypeError) as error:
            raise DataError(f"an array's shape does not match its content ({error})") from error


class _DType:
    """Replaces numpy.dtype in a pickle."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass


_HARMLESS = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: PlainArray(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: PlainArray(),
    ("numpy", "ndarray"): PlainArray,
    ("numpy", "dtype"): _DType,
    # With it, Python 3 writes bytes into a pickle that Python 2 can read.
    ("_codecs", "encode"): lambda text, _: text.encode("latin1"),
}


class _DataOnly(pickle.Unpickler):
    """Reads lists, dicts, bytes, numbers and arrays of bytes; refuses everything else, so that nothing is ever run."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _HARMLESS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which data does not need; nothing was run")
        return _HARMLESS[module, name]


def read_pickle(content: bytes, name: str) -> dict[bytes, Any]:
    """Load a pickled dictionary of plain data; `name` is for error messages."""
    with _damage(name):  # a damaged pickle may raise anything
        for count, (operation, index, _) in enumerate(pickletools.genops(content)):
            # The unpickler allocates memory up to the index, so that ten bytes can ask for 64 GB.
            if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(index or 0) > count:
                raise ValueError(f"it has the memo index {index} after {count} operations")
        values = _DataOnly(io.BytesIO(content), encoding="bytes").load()
    require(isinstance(values, dict), f"{name} is not a dictionary")
    return values  # type: ignore[no-any-return]


def read_svhn(files: OriginalFiles) -> DatasetStream:
    """Read SVHN's cropped digits: X (32, 32, 3, n), and y with 10 for the digit 0."""
    from scipy.io import loadmat, whosmat

    def chunks() -> Iterator[Chunk]:
        for part in ("train", "test"):
            name = f"{part}_32x32.mat"
            with _damage(name), files.open(name) as file:
                shapes = {variable: shape for variable, shape, _ in whosmat(file)}  # checked before they get memory
                require(shapes["X"] == (32, 32, 3, max(shapes["y"])), f"{name} has X of shape {shapes['X']}")
                require(3072 * shapes["X"][3] <= LARGEST, f"{name} has {shapes['X'][3]} images")
                file.seek(0)
                values = loadmat(file, variable_names=["X", "y"])
                images, labels = values["X"], values["y"].ravel()
                fits = images.shape == (32, 32, 3, len(labels))
                valid = images.dtype == np.uint8 and fits and labels.dtype.kind in "uif"
                require(valid, f"{name} has X of shape {images.shape} for {len(labels)} labels of type {labels.dtype}")
            yield Chunk(part, images.transpose(3, 0, 1, 2), labels.astype(np.int64) % 10)

    return DatasetStream(tuple("0123456789"), chunks())


STL10_BYTES = 3 * 96 * 96


def read_stl10(files: OriginalFiles) -> DatasetStream:
    """Read STL-10's binary version: labels from 1, images column by column; unlabeled images follow labeled ones."""

    def chunks() -> Iterator[Chunk]:
        for name in ("train", "test", "unlabeled"):
            labels = None
            if name != "unlabeled":
                labels = np.frombuffer(files.content(f"{name}_y.bin"), np.uint8).astype(np.int64) - 1
            count = 0
            with files.open(f"{name}_X.bin") as file:
                while content := file.read(1000 * STL10_BYTES):
                    require(len(content) % STL10_BYTES == 0, f"{name}_X.bin ends in the middle of an image")
                    images = np.frombuffer(content, np.uint8).reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
                    known = np.full(len(images), UNLABELED) if labels is None else labels[count : count + len(images)]
                    require(len(known) == len(images), f"{name}_X.bin has more images than labels")
                    count += len(images)
                    yield Chunk("test" if name == "test" else "train", images, known)
            require(labels is None or count == len(labels), f"{name}_X.bin has fewer images than labels")

    lines = [line.split() for line in files.lines("fold_indices.txt")]
    valid = all(word.isdecimal() and len(word) < 9 for line in lines for word in line)
    require(valid, "fold_indices.txt has words that are not row numbers")
    folds = tuple(np.array(line, dtype=np.int64) for line in lines)
    return DatasetStream(tuple(" ".join(files.lines("class_names.txt")).split()), chunks(), folds)


def read_tiny_imagenet(files: OriginalFiles) -> DatasetStream:
    """Read Tiny ImageNet: 64×64 JPEGs, some of them grayscale; its validation images are the test set."""
    wnids = sorted(files.lines("wnids.txt"))
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    words = dict(line.split("\t", 1) for line in files.lines("words.txt") if "\t" in line)
    names = [words.get(wnid, wnid).split(",")[0] for wnid in wnids]
    # Some classes share a word ("crane", "bow tie"…); the wnid distinguishes them.
    classes = tuple(
        name if names.count(name) == 1 else f"{name} {wnid}" for name, wnid in zip(names, wnids, strict=True)
    )
    train = []
    for name in sorted(files.members):  # train/WNID/images/NAME.JPEG
        parts = name.split("/")
        if len(parts) == 4 and parts[0] == "train" and parts[1] in label_of and name.endswith(".JPEG"):
            train.append((name, label_of[parts[1]]))
    pairs = [line.split("\t")[:2] for line in files.lines("val/val_annotations.txt") if line]
    require(all(pair[1:] and pair[1] in label_of for pair in pairs), "val_annotations.txt has unknown classes")
    test = [(f"val/images/{name}", label_of[wnid]) for name, wnid in pairs]
    require(bool(train) and bool(test), f"{files.place} has no images")

    def pixels(name: str) -> np.ndarray:
        with _damage(name):
            image = open_image(io.BytesIO(files.content(name)), name, ("JPEG",))
            require(image.size == (64, 64), f"{name} is {image.size[0]}×{image.size[1]}, not 64×64")
            return np.asarray(image.convert("RGB"))

    def chunks(size: int = 1000) -> Iterator[Chunk]:
        for part, labeled in (("train", train), ("test", test)):
            for start in range(0, len(labeled), size):
                chunk = labeled[start : start + size]
                images = np.stack([pixels(name) for name, _ in chunk])
                yield Chunk(part, images, np.array([label for _, label in chunk], dtype=np.int64))

    return DatasetStream(classes, chunks())


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
    zipped = f"{name}.gz" in files.members
    with _damage(name):
        content = files.content(f"{name}.gz" if zipped else name, zipped=zipped)
        magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
    require(magic == 0x800 + dimensions, f"{name} does not begin like an idx file of bytes")
    pixels = np.frombuffer(content, np.uint8, offset=4 * (1 + dimensions))
    require(len(pixels) == math.prod(shape), f"{name} has {len(pixels)} values, not {' × '.join(map(str, shape))}")
    return pixels.reshape(shape)
