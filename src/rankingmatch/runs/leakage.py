"""Which image files a run has seen in training: the error on those is not the error on new images."""

import hashlib
import os
from collections.abc import Iterator, Sequence

from rankingmatch.core.errors import ConfigError, DataError
from rankingmatch.data import BENCHMARKS, ImageFile, ImageFolder, UnreadableError, printable
from rankingmatch.data.decode import file_size, open_file
from rankingmatch.runs.config import plan_of
from rankingmatch.runs.directory import Run

__all__ = ["roles_in_training"]


def roles_in_training(run: Run, files: Sequence[ImageFile]) -> dict[ImageFile, str] | None:
    """What a run has used files for: "labeled", "unlabeled" or "validation"; a file that it has not used is missing.

    A copy counts as the same file. Returns None if that is not known, because the folder of the run is not there.

    Parameters
    ----------
    run
        A run.
    files
        Image files.
    """
    config = run.config()
    if config.dataset in BENCHMARKS:
        return {}
    try:
        source = plan_of(config).source
    except (ConfigError, DataError):
        return None
    assert isinstance(source, ImageFolder)
    used = dict(_used_files(run, source))
    real = {os.path.realpath(str(path)): role for path, role in used.items()}
    roles = {file: real[path] for file in files if (path := os.path.realpath(str(file))) in real}
    others = [file for file in files if file not in roles]
    sizes = {size for file in others if (size := _size(file)) is not None}
    copied = {_digest(path): role for path, role in used.items() if _size(path) in sizes}
    known = {file: copied.get(_digest(file)) for file in others} if copied else {}
    return {**roles, **{file: role for file, role in known.items() if role is not None}}


def _used_files(run: Run, source: ImageFolder) -> Iterator[tuple[ImageFile, str]]:
    """The files of the training and validation images of a folder, each with its role."""
    contents = source.contents
    yield from ((contents.path(file), "validation") for file, _ in contents.parts.get("validation", ()))
    rows = run.split_rows()
    skipped = {file for file, _ in rows.skipped} if rows else set()
    read = [file for file, _ in contents.parts["train"] if printable(file) not in skipped]
    # If files were added or removed, rows are not those of training: then every image may have been used.
    same = rows is not None and rows.fingerprint == contents.fingerprint()
    labeled, held_out = (set(rows.labeled), set(rows.validation)) if rows and same else (set(), set())
    for row, file in enumerate(read):
        role = "labeled" if row in labeled else "validation" if row in held_out else "unlabeled"
        yield contents.path(file), role


def _size(file: ImageFile) -> int | None:
    try:
        return file_size(file)
    except OSError:
        return None


def _digest(file: ImageFile) -> bytes:
    """The checksum of a file; of one that cannot be read, of its name."""
    try:
        with open_file(file) as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except (OSError, UnreadableError):
        return os.fsencode(str(file))
