"""Image files as uint8 arrays of one shape: the same code reads files for training and for prediction.

An image is rotated as its EXIF orientation tells, composed with white where it is transparent, and resized to the shape
without cropping. Of an animation, the first frame is used; of 16-bit values, the upper eight bits.
"""

import contextlib
import io
import math
import os
import re
import stat
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import IO, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from PIL import Image, ImageOps
from PIL.ImageFile import ImageFile as PillowFile

# Image formats. The others that Pillow supports are documents, or are read by starting other programs.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
# Endings of images that Pillow does not read, and what to do with them.
FOREIGN = {
    *(".heic", ".heif", ".hif", ".jxl", ".svg", ".psd"),
    *(".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".rw2", ".raf"),  # of cameras
}
CONVERT = "convert images of these formats to JPEG, for example with `magick mogrify -format jpg`"
HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")  # brands in its first bytes
GRAY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N")
FILTER, REDUCING_GAP, DRAFT = Image.Resampling.LANCZOS, 3.0, 3
MOST_PIXELS = 2**25  # of an image as it is decoded: with the copies made for resizing, less than a gigabyte
MOST_PROGRESSIVE_PIXELS = 2**26  # of a progressive JPEG, whose pixels take six bytes
MOST_PLAIN_BYTES = 2**22  # of a PPM with numbers as text
MOST_SCANS = 200  # of a JPEG: a progressive one usually has ten
MOST_SCANNED_PIXELS = 2**30  # pixels times scans, which take seconds
MOST_STORED_PIXELS = 178_956_970  # of a file, also of a JPEG that is decoded at a fraction of its size
FILES_AT_ONCE = 64  # files that a thread decodes before it returns them,
VALUES_AT_ONCE = 2**25  # or fewer if they have more values than this


class UnreadableError(Exception):
    """A file that cannot be read as an image; the message is the reason, such as "is empty"."""


class StoredImage(Protocol):
    """An image in a larger file. It is hashable, and `str` gives the name for tables and messages."""

    @property
    def size(self) -> int:
        """The number of its bytes."""

    def read(self) -> bytes:
        """Its bytes; UnreadableError if the larger file has changed."""

    def stamp(self, *, exactly: bool = False) -> str:
        """What changes when its bytes do: sizes and times; with `exactly`, also when the file was created here."""


ImageFile = str | StoredImage  # a path, or an image in a larger file
File = TypeVar("File", bound=ImageFile)


def file_size(file: ImageFile) -> int:
    """The number of bytes of an image file."""
    return os.stat(file).st_size if isinstance(file, str) else file.size  # noqa: PTH116


def open_file(file: ImageFile) -> io.BytesIO | io.BufferedReader:
    """Open an image file to be read; UnreadableError if it is empty, or a folder, a device or the like."""
    if not isinstance(file, str):
        content = file.read()
        if not content:
            raise UnreadableError("is empty")
        return io.BytesIO(content)
    status = os.stat(file)  # noqa: PTH116 - a Path for each of a million files is slow
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableError("is not a file")
    if status.st_size == 0:
        raise UnreadableError("is empty")
    return open(file, "rb")  # noqa: PTH123


class DecodedFiles(NamedTuple, Generic[File]):
    """Consecutive files, decoded: those that could be read, and the others, each with the reason."""

    files: tuple[File, ...]
    images: np.ndarray  # (len(files), h, w, c) uint8
    bad: tuple[tuple[File, str], ...]
    gray: bool  # whether all images are grayscale


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


def preprocessing(shape: tuple[int, int, int], *, crop: bool) -> dict[str, Any]:
    """Describe in plain values how `decode` makes an array of a file, for programs without this package."""
    height, width, channels = shape
    return {
        "order": ["draft", "orientation", "plain", "resize", "mode"],
        "draft": DRAFT,  # a JPEG is decoded at the smallest fraction that is at least so many times the larger side
        "orientation": "exif",
        "plain": {"transparent": "white", "sixteen_bits": "upper eight"},  # of mode L or RGB
        "resize": "crop" if crop else "squeeze",
        "filter": FILTER.name.lower(),
        "reducing_gap": REDUCING_GAP,
        "height": height,
        "width": width,
        "mode": "L" if channels == 1 else "RGB",
    }


def decode(file: ImageFile, shape: tuple[int, int, int], *, crop: bool = False) -> np.ndarray:
    """Read a file as an array of this (height, width, channels); raise UnreadableError if that is impossible."""
    return _decode(file, shape, crop)[0]


def read_header(file: ImageFile) -> Header:
    """Read an image's header; raise UnreadableError if the file is not an image."""
    with _opened(file) as image:
        width, height = image.size
        with contextlib.suppress(Exception):  # damaged EXIF data: the image itself may be good
            if image.getexif().get(0x0112, 1) >= 5:  # rotated by 90 degrees
                width, height = height, width
        return Header(height, width, image.mode in GRAY_MODES)


def view_image(file: ImageFile, side: int) -> Image.Image:
    """Read a file to be looked at: an upright image in sRGB whose longer side has at most `side` pixels.

    Raises UnreadableError if that is impossible.
    """
    with _opened(file) as image:
        profile = image.info.get("icc_profile")
        plain = _plain_image(file, image, side, max(image.size)).convert("RGB")
        plain.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=3.0)
        if profile and image.mode in ("RGB", "RGBA", "P"):
            with contextlib.suppress(Exception):  # a damaged profile; Pillow may have been built without LittleCMS
                from PIL import ImageCms

                own, srgb = ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB")
                return ImageCms.profileToProfile(plain, own, srgb, outputMode="RGB") or plain
        return plain


def decode_files(
    files: Iterable[File], shape: tuple[int, int, int], *, crop: bool = False
) -> Iterator[DecodedFiles[File]]:
    """Decode files in parallel, some at a time and in order; only a few of them are in memory.

    With `crop`, images keep their proportions, and what sticks out is cut off, at both sides alike; otherwise they are
    squeezed.
    """
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    names, at_once = iter(files), files_at_once(shape)
    groups = iter(lambda: tuple(islice(names, at_once)), ())
    with ThreadPoolExecutor(workers) as pool:  # Pillow decodes and resizes without holding the GIL
        pending: deque[Future[DecodedFiles[File]]] = deque(
            pool.submit(_decode_group, group, shape, crop) for group in islice(groups, 2 * workers)
        )
        while pending:
            decoded = pending.popleft().result()
            pending.extend(pool.submit(_decode_group, group, shape, crop) for group in islice(groups, 1))
            yield decoded


def files_at_once(shape: tuple[int, int, int]) -> int:
    """How many files `decode_files` decodes together, and returns at a time."""
    return max(1, min(FILES_AT_ONCE, VALUES_AT_ONCE // math.prod(shape)))


def _decode_group(files: tuple[File, ...], shape: tuple[int, int, int], crop: bool) -> DecodedFiles[File]:
    images = np.empty((len(files), *shape), dtype=np.uint8)
    good: list[File] = []
    bad: list[tuple[File, str]] = []
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


def _decode(file: ImageFile, shape: tuple[int, int, int], crop: bool) -> tuple[np.ndarray, bool]:
    """The pixels, and whether the file is grayscale."""
    height, width, channels = shape
    with _opened(file) as image:
        gray = image.mode in GRAY_MODES
        plain = _plain_image(file, image, DRAFT * max(height, width), min(image.size))
        if plain.size != (width, height):
            # The largest part in the middle with this ratio of width to height, or everything.
            (across, down), ratio = plain.size, width / height
            wide, high = (min(across, down * ratio), min(down, across / ratio)) if crop else (across, down)
            left, top = (across - wide) / 2, (down - high) / 2
            box = (left, top, left + wide, top + high)
            plain = plain.resize((width, height), FILTER, box, reducing_gap=REDUCING_GAP)
        return np.asarray(_in_mode(plain, "L" if channels == 1 else "RGB")).reshape(shape), gray


# --- opening -------------------------------------------------------------------------------------------------


def open_image(stream: IO[bytes], name: str, formats: tuple[str, ...]) -> Image.Image:
    """Open an image of one of these formats; raise UnreadableError if it is of another format, or too large.

    `PIL.Image.open` warns about images above 89 megapixels, such as panoramas, which are fine here. Warnings can only
    be silenced for a whole process, so this asks Pillow's formats directly, as `open` does, and checks the size itself.
    """
    prefix = stream.read(16)
    for format in formats:
        if format not in Image.OPEN:  # as Pillow was built here
            continue
        factory, accepts = Image.OPEN[format]
        accepted = accepts is None or accepts(prefix)
        if not accepted or isinstance(accepted, str):  # a str explains why Pillow cannot read the format here
            continue
        stream.seek(0)
        if format == "PPM":  # width and height must be near its beginning: Pillow reads comments byte by byte
            if len(re.sub(rb"#[^\r\n]*", b" ", stream.read(4096)).split()) < 3:
                continue
            stream.seek(0)
        try:
            image = factory(stream, name)
        except (SyntaxError, IndexError, TypeError, struct.error):  # not this format after all, or damaged
            continue
        if image.width * image.height > MOST_STORED_PIXELS:
            raise UnreadableError("has too many pixels")
        return image
    if prefix[4:8] == b"ftyp" and prefix[8:12] in HEIC:  # also under the name of a JPEG, as some phones save it
        raise UnreadableError("is a HEIC image, which cannot be read; convert it to JPEG")
    raise UnreadableError("is not an image")


@contextlib.contextmanager
def _opened(file: ImageFile) -> Iterator[Image.Image]:
    """The image in a file; whatever is wrong with it is an UnreadableError."""
    try:
        Image.init()
        with open_file(file) as stream, open_image(stream, str(file), FORMATS) as image:
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


def _plain_image(file: ImageFile, image: Image.Image, enough: int, side: int) -> Image.Image:
    """An upright image without transparency, palette or 16-bit values: of mode L or RGB.

    A JPEG whose `side` is at least twice what is `enough` is decoded at the smallest simple fraction that is enough.
    """
    _check_cost(file, image)
    if side >= 2 * enough:
        image.draft(None, (enough, enough))
    if image.width * image.height > MOST_PIXELS:
        raise UnreadableError(f"has {image.width}×{image.height} pixels, too many for an image that is not a JPEG")
    if image.format != "JPEG" or {"exif", "xmp"} & image.info.keys():  # most small JPEGs have neither
        with contextlib.suppress(Exception):  # damaged EXIF data: the image itself may be good
            image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
    if image.mode == "F":
        raise UnreadableError("has floats instead of gray levels")
    gray = image.mode in GRAY_MODES
    if image.has_transparency_data:
        image = _in_mode(image, "RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return _in_mode(image, "L" if gray else "RGB")


def _check_cost(file: ImageFile, image: Image.Image) -> None:
    """Raise UnreadableError for a file that would take minutes: a large plain PPM, or a JPEG with thousands of scans.

    A progressive JPEG is in memory as a whole, also if it is decoded at a fraction of its size. A JPEG of another kind
    has at most one pass per channel unless it is larger than its pixels.
    """
    if image.format == "PPM" and isinstance(image, PillowFile) and image.tile[0][0] == "ppm_plain":
        if file_size(file) > MOST_PLAIN_BYTES:
            raise UnreadableError("has too many numbers as text")  # which Pillow reads slowly
    elif image.format == "JPEG":
        pixels, progressive = image.width * image.height, "progressive" in image.info
        if progressive and pixels > MOST_PROGRESSIVE_PIXELS:
            raise UnreadableError(f"has {image.width}×{image.height} pixels, too many for a progressive JPEG")
        if progressive or file_size(file) > pixels:
            scans, last = 0, b""
            with open_file(file) as stream:
                while block := stream.read(1 << 20):
                    scans += (last + block).count(b"\xff\xda")  # which compressed pixels never contain
                    last = block[-1:]
            if scans > MOST_SCANS or scans * pixels > MOST_SCANNED_PIXELS:
                raise UnreadableError(f"is a JPEG with {scans:,} scans, too many")


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)  # `convert` would copy an image of this mode
