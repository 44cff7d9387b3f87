"""A shard, a file of many images, as it was when its contents were listed; and the labels in shards as text."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rankingmatch.core.errors import DataError
from rankingmatch.core.names import printable
from rankingmatch.core.untrusted import BadFileError
from rankingmatch.data.image_files import UnreadableError

__all__ = ["MOST_IMAGE", "SHARDS", "Shard", "find_shard", "label_text"]

SHARDS = {".tar", ".parquet"}  # endings of their names
MOST_IMAGE = 2**28  # bytes of an image in a shard, which is read as a whole
LONGEST_LABEL = 255  # characters, as of the name of a folder


@dataclass(frozen=True)
class Shard:
    """A shard and its stamps.

    Attributes
    ----------
    path
        Its path.
    size
        The number of its bytes.
    modified, changed
        When its content was modified, and when the file was changed or created here, in nanoseconds.
    """

    path: str
    size: int
    modified: int
    changed: int

    def open(self) -> IO[bytes]:
        """Open it to be read; UnreadableError if it has changed meanwhile, so that places in it are no longer known."""
        try:
            file = open(self.path, "rb")  # noqa: PTH123, SIM115
        except OSError as error:
            raise UnreadableError(f"cannot be read ({error.strerror})") from error
        if _shard(self.path, os.fstat(file.fileno())) != self:
            file.close()
            raise UnreadableError("cannot be read, because the shard has changed meanwhile")
        return file

    def stamp(self, *, exactly: bool) -> str:
        """When it was modified; with `exactly`, also when it was created here."""
        return f"{self.modified} {self.changed}" if exactly else str(self.modified)


def find_shard(path: Path) -> Shard:
    """The shard at a path as it is now; DataError if there is none that can be read."""
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{printable(str(path))} cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{printable(str(path))} is not a file")
    return _shard(str(path), status)


def _shard(path: str, status: os.stat_result) -> Shard:
    return Shard(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def label_text(value: object) -> str:
    """A label in a shard as the name of a class; empty for none, which other programs write as null or -1.

    Raises BadFileError if it is neither a text nor a whole number, or too long.
    """
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadFileError(f"the label is {value!r:.50}; it must be a text or a whole number")
    text = str(value).strip()
    if len(text) > LONGEST_LABEL:
        raise BadFileError(f"the label has {len(text):,} characters, more than {LONGEST_LABEL}")
    return "" if text == "-1" else text
