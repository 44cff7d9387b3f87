"""Image files as uint8 arrays of one shape: the one way from a file to pixels, for training and for prediction.

An image is turned as its EXIF orientation says, laid on white where it is transparent, and squeezed to the shape as a
whole: nothing is cut off. Of an animation, the first picture counts; of 16 bits, the upper eight.
"""

import contextlib
import os
import stat
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

# Formats of pictures. Others that Pillow knows are documents, or start other programs to be read.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N")
# Pillow warns of pictures above 89 megapixels, as panoramas have them, and refuses those of twice as many.
warnings.simplefilter("ignore", Image.DecompressionBombWarning)

AT_ONCE = 64  # files that a thread decodes before it hands them on


class UnreadableError(Exception):
    """A file that is no image; the message says why."""


class Chunk(NamedTuple):
    """Some decoded files: those that could be read, in order, and the others with the reason."""

    files: tuple[str, ...]
    images: np.ndarray  # (len(files), h, w, c) uint8
    bad: tuple[tuple[str, str], ...]
    grey: bool  # whether none of them has colours


class Header(NamedTuple):
    """What an image file says of itself before it is decoded."""

    height: int
    width: int
    grey: bool


@cache
def image_suffixes() -> frozenset[str]:
    """How the names of image files end; a name without an ending may be an image, too."""
    Image.init()
    return frozenset({"", *(suffix for suffix, name in Image.EXTENSION.items() if name in FORMATS)})


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def decode(file: str, shape: tuple[int, int, int]) -> np.ndarray:
    """A file as an array of this (height, width, channels); UnreadableError if it cannot be."""
    return _decoded(file, shape)[0]


def header(file: str) -> Header:
    """An image's size, as it is shown, and whether it is grey; UnreadableError if it is none."""
    with _opened(file) as image:
        width, height = image.size
        with contextlib.suppress(Exception):
            if image.getexif().get(0x0112, 1) >= 5:  # turned by a quarter
                width, height = height, width
        return Header(height, width, image.mode in GREY)


def decoded(files: Iterable[str], shape: tuple[int, int, int]) -> Iterator[Chunk]:
    """Files decoded on all cores, in order; however many they are, only a few are in memory."""
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    names = iter(files)
    pieces = iter(lambda: tuple(islice(names, AT_ONCE)), ())
    with ThreadPoolExecutor(workers) as pool:  # Pillow decodes and resizes without holding the interpreter
        ahead: deque[Future[Chunk]] = deque(pool.submit(_chunk, some, shape) for some in islice(pieces, 2 * workers))
        while ahead:
            chunk = ahead.popleft().result()
            ahead.extend(pool.submit(_chunk, some, shape) for some in islice(pieces, 1))
            yield chunk


def _chunk(files: tuple[str, ...], shape: tuple[int, int, int]) -> Chunk:
    images = np.empty((len(files), *shape), dtype=np.uint8)
    good: list[str] = []
    bad: list[tuple[str, str]] = []
    all_grey = True
    for file in files:
        try:
            images[len(good)], grey = _decoded(file, shape)
        except UnreadableError as error:
            bad.append((file, str(error)))
        else:
            good.append(file)
            all_grey = all_grey and grey
    return Chunk(tuple(good), images[: len(good)], tuple(bad), all_grey)


def _decoded(file: str, shape: tuple[int, int, int]) -> tuple[np.ndarray, bool]:
    """The pixels, and whether the file has no colours."""
    height, width, channels = shape
    with _opened(file) as image:
        grey = image.mode in GREY
        # A large JPEG is decoded at the nearest simple fraction of its size that is still three times what is wanted.
        enough = 3 * max(height, width)
        if min(image.size) >= 2 * enough:
            image.draft(None, (enough, enough))
        plain = _plain(_upright(image))
        if plain.size != (width, height):
            plain = plain.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0)
        return np.asarray(_in_mode(plain, "L" if channels == 1 else "RGB")).reshape(shape), grey


@contextlib.contextmanager
def _opened(file: str) -> Iterator[Image.Image]:
    """The image in a file; whatever is wrong with it is an UnreadableError."""
    try:
        about = os.stat(file)  # noqa: PTH116 - a Path for each of a million files is slow
        if not stat.S_ISREG(about.st_mode):
            raise UnreadableError("is no file")
        if about.st_size == 0:
            raise UnreadableError("is empty")
        with Image.open(file, formats=_formats()) as image:
            yield image
    except UnreadableError:
        raise
    except UnidentifiedImageError as error:
        raise UnreadableError("is no image") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadableError("has too many pixels to be a picture") from error
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror or error})") from error
    except Exception as error:  # Pillow raises many kinds for a damaged file
        raise UnreadableError(f"cannot be decoded ({type(error).__name__}: {error})") from error


def _upright(image: Image.Image) -> Image.Image:
    if image.format == "JPEG" and not {"exif", "xmp"} & image.info.keys():  # the quick way for most small files
        return image
    with contextlib.suppress(Exception):  # damaged EXIF data: the picture may still be good
        return ImageOps.exif_transpose(image)
    return image


def _plain(image: Image.Image) -> Image.Image:
    """An image without transparency, palette or 16 bits: of mode L or RGB."""
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64).clip(0, 65535)
        return Image.fromarray((values >> 8).astype(np.uint8))
    if image.mode == "F":
        raise UnreadableError("has numbers instead of grey levels")
    grey = image.mode in GREY
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return _in_mode(image, "L" if grey else "RGB")


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)  # which copies where there is nothing to do
