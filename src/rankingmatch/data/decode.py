"""Image files as uint8 arrays of one shape: the same code reads files for training and for prediction.

An image is rotated as its EXIF orientation tells, composed with white where it is transparent, and resized to the shape
without cropping. Of an animation, the first frame is used; of 16-bit values, the upper eight bits.
"""

import contextlib
import os
import stat
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import IO, NamedTuple

import numpy as np
from PIL import Image, ImageOps

__all__ = [
    "DecodedFiles",
    "Header",
    "UnreadableError",
    "decode",
    "decode_files",
    "image_suffixes",
    "open_image",
    "read_header",
]

# Image formats. The others that Pillow supports are documents, or are read by starting other programs.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
GRAY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N")
MOST_PIXELS = 2**25  # of an image as it is decoded: with the copies made for resizing, less than a gigabyte
MOST_STORED_PIXELS = 178_956_970  # of a file, also of a JPEG that is decoded at a fraction of its size
FILES_AT_ONCE = 64  # files that a thread decodes before it returns them


class UnreadableError(Exception):
    """A file that cannot be read as an image; the message is the reason, such as "is empty"."""


class DecodedFiles(NamedTuple):
    """Consecutive files, decoded: those that could be read, and the others.

    Attributes
    ----------
    files
        The files that could be read, in order.
    images
        Their pixels, (len(files), h, w, c) uint8.
    bad
        The other files, each with the reason.
    gray
        Whether all images are grayscale.
    """

    files: tuple[str, ...]
    images: np.ndarray
    bad: tuple[tuple[str, str], ...]
    gray: bool


class Header(NamedTuple):
    """The size of an image, in its EXIF orientation, and whether it is grayscale."""

    height: int
    width: int
    gray: bool


@cache
def image_suffixes() -> frozenset[str]:
    """The suffixes of image files; the empty one is among them."""
    Image.init()
    return frozenset({"", *(suffix for suffix, name in Image.EXTENSION.items() if name in FORMATS)})


def decode(file: str, shape: tuple[int, int, int], *, crop: bool = False) -> np.ndarray:
    """Read a file as an array of this (height, width, channels); raise UnreadableError if that is impossible."""
    return _decode(file, shape, crop)[0]


def read_header(file: str) -> Header:
    """Read an image's header; raise UnreadableError if the file is not an image."""
    with _opened(file) as image:
        width, height = image.size
        with contextlib.suppress(Exception):  # damaged EXIF data: the image itself may be good
            if image.getexif().get(0x0112, 1) >= 5:  # rotated by 90 degrees
                width, height = height, width
        return Header(height, width, image.mode in GRAY_MODES)


def decode_files(files: Iterable[str], shape: tuple[int, int, int], *, crop: bool = False) -> Iterator[DecodedFiles]:
    """Decode files in parallel; only a few of them are in memory at a time.

    Parameters
    ----------
    files
        Paths of image files.
    shape
        (height, width, channels), to which images are resized.
    crop
        Whether to keep the proportions and cut off what sticks out, at both sides alike; otherwise images are squeezed.

    Yields
    ------
    DecodedFiles
        Some files at a time, in order.
    """
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    names = iter(files)
    groups = iter(lambda: tuple(islice(names, FILES_AT_ONCE)), ())
    with ThreadPoolExecutor(workers) as pool:  # Pillow decodes and resizes without holding the GIL
        pending: deque[Future[DecodedFiles]] = deque(
            pool.submit(_decode_group, group, shape, crop) for group in islice(groups, 2 * workers)
        )
        while pending:
            decoded = pending.popleft().result()
            pending.extend(pool.submit(_decode_group, group, shape, crop) for group in islice(groups, 1))
            yield decoded


def _decode_group(files: tuple[str, ...], shape: tuple[int, int, int], crop: bool) -> DecodedFiles:
    images = np.empty((len(files), *shape), dtype=np.uint8)
    good: list[str] = []
    bad: list[tuple[str, str]] = []
    all_gray = True
    for file in files:
        try:
            images[len(good)], gray = _decode(file, shape, crop)
        except UnreadableError as error:
            bad.append((file, str(error)))
        else:
            good.append(file)
            all_gray = all_gray and gray
    return DecodedFiles(tuple(good), images[: len(good)], tuple(bad), all_gray)


def _decode(file: str, shape: tuple[int, int, int], crop: bool) -> tuple[np.ndarray, bool]:
    """The pixels, and whether the file is grayscale."""
    height, width, channels = shape
    with _opened(file) as image:
        gray = image.mode in GRAY_MODES
        # A large JPEG is decoded at the smallest simple fraction of its size that is at least three times the target.
        enough = 3 * max(height, width)
        if min(image.size) >= 2 * enough:
            image.draft(None, (enough, enough))
        if image.width * image.height > MOST_PIXELS:
            raise UnreadableError(f"has {image.width}×{image.height} pixels, too many for an image that is not a JPEG")
        plain = _plain(_upright(image))
        if plain.size != (width, height):
            box = _middle(plain.size, width / height) if crop else None
            plain = plain.resize((width, height), Image.Resampling.LANCZOS, box, reducing_gap=3.0)
        return np.asarray(_in_mode(plain, "L" if channels == 1 else "RGB")).reshape(shape), gray


def _middle(size: tuple[int, int], ratio: float) -> tuple[float, float, float, float]:
    """The box (left, top, right, bottom) of the largest part in the middle with this ratio of width to height."""
    width, height = min(size[0], size[1] * ratio), min(size[1], size[0] / ratio)
    left, top = (size[0] - width) / 2, (size[1] - height) / 2
    return left, top, left + width, top + height


# --- opening -------------------------------------------------------------------------------------------------


def open_image(stream: IO[bytes], name: str, formats: tuple[str, ...]) -> Image.Image:
    """Open an image of one of these formats; raise UnreadableError if it is of another format, or too large.

    `PIL.Image.open` warns about images above 89 megapixels, such as panoramas, which are fine here. Warnings can only
    be silenced for a whole process, so this asks Pillow's formats directly, as `open` does, and checks the size itself.
    """
    prefix = stream.read(16)
    for factory, accepts in (Image.OPEN[format] for format in formats):
        accepted = accepts is None or accepts(prefix)
        if not accepted or isinstance(accepted, str):  # a str explains why Pillow cannot read the format here
            continue
        stream.seek(0)
        try:
            image = factory(stream, name)
        except (SyntaxError, IndexError, TypeError, struct.error):  # not this format after all, or damaged
            continue
        if image.width * image.height > MOST_STORED_PIXELS:
            raise UnreadableError("has too many pixels")
        return image
    raise UnreadableError("is not an image")


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


@contextlib.contextmanager
def _opened(file: str) -> Iterator[Image.Image]:
    """The image in a file; whatever is wrong with it is an UnreadableError."""
    try:
        status = os.stat(file)  # noqa: PTH116 - a Path for each of a million files is slow
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError("is not a file")
        if status.st_size == 0:
            raise UnreadableError("is empty")
        with open(file, "rb") as stream, open_image(stream, file, _formats()) as image:  # noqa: PTH123
            yield image
    except UnreadableError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadableError("has too many pixels") from error
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror or error})") from error
    except Exception as error:  # Pillow raises many types for a damaged file
        raise UnreadableError(f"cannot be decoded ({type(error).__name__}: {error})") from error


# --- pixels --------------------------------------------------------------------------------------------------


def _upright(image: Image.Image) -> Image.Image:
    if image.format == "JPEG" and not {"exif", "xmp"} & image.info.keys():  # a shortcut for most small files
        return image
    with contextlib.suppress(Exception):  # damaged EXIF data: the image itself may be good
        return ImageOps.exif_transpose(image)
    return image


def _plain(image: Image.Image) -> Image.Image:
    """An image without transparency, palette or 16-bit values: of mode L or RGB."""
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
    if image.mode == "F":
        raise UnreadableError("has floats instead of gray levels")
    gray = image.mode in GRAY_MODES
    if image.has_transparency_data:
        image = _in_mode(image, "RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return _in_mode(image, "L" if gray else "RGB")


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)  # `convert` would copy an image of this mode
