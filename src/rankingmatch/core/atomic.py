"""Writing files so that a crash, a full disk or another process never leaves one half-written."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at any time either the old or the new one exists, complete."""
    with opened_atomically(path) as file:
        file.write(content)


@contextmanager
def opened_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A file to write piece by piece; it appears under its name when the block ends without an error."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_json(path: Path, value: Mapping[str, Any], indent: int | None = 2) -> None:
    """Write a JSON object atomically."""
    write_atomically(path, (json.dumps(value, indent=indent, ensure_ascii=False) + "\n").encode())
