"""Writing files so that a crash, a full disk or another process never leaves one half-written.

A file is first written under a name that nobody can guess and that did not exist, and then renamed. So a link that
someone has put into the directory is never followed: it is replaced.
"""

import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rankingmatch.core.names import to_utf8

_NO_LINK = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at any time either the old or the new one exists, complete."""
    with opened_atomically(path) as file:
        file.write(content)


@contextmanager
def opened_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A file to write in parts; it appears under its name when the block ends without an error."""
    temporary = _unguessable(path)
    try:
        with os.fdopen(os.open(temporary, _NO_LINK | os.O_EXCL, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names of new files in a directory safe from a power failure."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _unguessable(path: Path) -> Path:
    return path.with_name(f"{path.name[:180]}.{secrets.token_hex(8)}.tmp")


def create_directory_beside(path: Path) -> Path:
    """Create a new directory beside a path, to be renamed to it when it is complete."""
    directory = path.with_name(f".{_unguessable(path).name}")
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir()
    return directory


def write_json(path: Path, value: Mapping[str, Any], indent: int | None = 2) -> None:
    """Write a JSON object atomically."""
    write_atomically(path, to_utf8(json.dumps(value, indent=indent, ensure_ascii=False) + "\n"))


def open_for_appending(path: Path) -> IO[str]:
    """A regular file to append text to, created if there is none; a link is not followed."""
    descriptor = os.open(path, _NO_LINK | os.O_APPEND | getattr(os, "O_NONBLOCK", 0), 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "a")


def unused_path(path: Path) -> Path:
    """The path, or one with a number added if it exists."""
    number, unused = 1, path
    stem = os.fsdecode(os.fsencode(path.stem)[:200])  # a name has at most 255 bytes, with the number and the ending
    while os.path.lexists(unused):
        number += 1
        unused = path.with_name(f"{stem}-{number}{path.suffix}")
    return unused


# --- files that the user names -------------------------------------------------------------------------------


@contextmanager
def opened_output(path: Path) -> Iterator[IO[bytes]]:
    """A file that the user has named, to write in parts.

    Links are followed. A device, a named pipe or an open file of this process, such as /dev/stdout, is written to as it
    is. Any other file appears when it is complete.
    """
    parent = os.path.realpath(path.parent)
    is_open = (parent.startswith("/proc/") and parent.endswith("/fd")) or str(path) in ("/dev/stdout", "/dev/stderr")
    if path.exists() and (is_open or not (path.is_file() or path.is_dir())):
        # Not the real path: that of a pipe that /dev/stdout stands for cannot be opened.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
            yield file
    else:
        with opened_atomically(Path(os.path.realpath(path))) as file:
            yield file


def write_output(path: Path, content: bytes) -> None:
    """Write a file that the user has named, as `opened_output` does."""
    with opened_output(path) as file:
        file.write(content)
