"""The journal on disk: rows are appended and synced before anyone is told that they are saved."""

import contextlib
import errno
import os
from pathlib import Path

from filelock import FileLock, Timeout

from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import DataError, first_line
from rankingmatch.core.names import printable
from rankingmatch.data.label_journal import COLUMNS, LabelEvent, format_events, is_journal, parse_events

__all__ = ["Journal", "JournalError"]


class JournalError(DataError):
    """A journal that cannot be written at the moment; nothing of the request was saved."""


class Journal:
    """An append-only CSV file, locked for this process.

    Attributes
    ----------
    path
        The CSV file; it is created with the first row.
    events
        The rows that it had when it was opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _locked(path)
        self._file: int | None = None
        self._end = 0  # the length of the complete rows
        self._torn = False  # whether something incomplete may follow them
        try:
            self.events = self._read()
        except BaseException:
            self._lock.release()
            raise

    def _read(self) -> list[LabelEvent]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DataError(f"{self.path} cannot be read ({error.strerror})") from error
        if len(content) <= len(",".join(COLUMNS)):  # empty, or a crash cut off the first line
            self._torn = True
            if not (",".join(COLUMNS) + "\n").encode().startswith(content):
                raise _not_a_journal(self.path)
            return []
        if not is_journal(content):
            raise _not_a_journal(self.path)
        events, self._end = parse_events(content, self.path)
        self._torn = self._end < len(content)
        return events

    def append(self, events: list[LabelEvent]) -> None:
        """Write rows to the disk; raise JournalError, with the file as before, if that is impossible."""
        if not events:
            return
        try:
            file = self._opened()
            self._check_unchanged(file)
            content = self._prefix(file) + format_events(events)
            self._torn = True
            _write(file, content)
            os.fsync(file)
        except OSError as error:
            self._cut()
            raise JournalError(_sentence(self.path, error)) from error
        self._end += len(content)
        self._torn = False

    def _opened(self) -> int:
        """The file, created if necessary, without an incomplete last row."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            _sync_directory(self.path.parent)
        if self._torn:
            os.ftruncate(self._file, self._end)
            self._torn = False
        return self._file

    def _check_unchanged(self, file: int) -> None:
        """Raise JournalError if another program has changed or replaced the file: its rows must not get lost."""
        ours = os.fstat(file)
        try:
            theirs: os.stat_result | None = self.path.stat()
        except FileNotFoundError:
            theirs = None
        same = theirs is not None and (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)
        if not same or ours.st_size != self._end:
            what = "deleted" if theirs is None else "changed"
            raise JournalError(f"{self.path} was {what} by another program; stop the server and start it again")

    def _prefix(self, file: int) -> bytes:
        """What must precede the next row: the names of the columns, or a line break that an editor dropped."""
        if self._end == 0:
            return (",".join(COLUMNS) + "\n").encode()
        return b"" if os.pread(file, 1, self._end - 1) == b"\n" else b"\n"

    def _cut(self) -> None:
        """Remove what a failed write has left; if that fails, too, the next append tries again."""
        if self._file is not None and self._torn:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._end)
                self._torn = False

    def copy(self, target: Path) -> None:
        """Write the complete rows to another file."""
        content = self.path.read_bytes()[: self._end] if self._end else (",".join(COLUMNS) + "\n").encode()
        write_atomically(target, content)

    def close(self) -> None:
        """Close the file and let other processes use it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._lock.release()


def _locked(path: Path) -> FileLock:
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise DataError(
            f"{path} is in use by another labeling server; open the address that it printed, or stop it"
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); choose another file for the labels") from error
    return lock


def _write(file: int, content: bytes) -> None:
    """Write all bytes to a file."""
    while content:
        content = content[os.write(file, content) :]


def _sync_directory(path: Path) -> None:
    """Make the entry of a new file safe from a power failure."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _sentence(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full: nothing was saved to {path}; free some space and try again"
    return f"{path} cannot be written ({error.strerror or first_line(error)}); nothing was saved, try again"


def _not_a_journal(path: Path) -> DataError:
    return DataError(
        f"{printable(str(path))} is not a journal of labels: its first line must be {','.join(COLUMNS)}; "
        "choose another file for the labels"
    )
