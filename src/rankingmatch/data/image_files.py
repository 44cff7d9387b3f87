"""What an image is read from: a file of its own, or a part of a larger file, such as a shard."""

import io
import os
import stat
from typing import Protocol

__all__ = ["ImageFile", "StoredImage", "UnreadableError", "file_size", "open_file"]


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
