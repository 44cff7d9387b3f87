"""The journal: rows that are synced to the disk before anyone is told that they are saved, and what they add up to."""

import contextlib
import errno
import os
import zlib
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from rankingmatch.core.atomic import sync_directory, write_atomically
from rankingmatch.core.errors import DataError, first_line, setting
from rankingmatch.core.names import printable
from rankingmatch.data.label_journal import (
    CLASS_PREFIX,
    HEADER,
    LabelEvent,
    format_events,
    is_journal,
    parse_events,
    read_table,
)

FIRST_LINE = HEADER + b"\n"
OPEN = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class JournalError(DataError):
    """A journal that cannot be written at the moment; nothing of the request was saved."""


class Journal:
    """An append-only CSV file, locked for this process; it is created with the first row.

    Neither the file nor its lock may be a link, which someone may have put into the folder. `events` are the rows that
    the file had when it was opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        lock = path.with_name(f".{path.name}.lock")
        for link in (one for one in (path, lock) if one.is_symlink()):
            raise DataError(
                f"{printable(str(link))} is a link, which is not followed; remove it, or name a file with "
                f"{setting('labels_csv')}"
            )
        self._lock = FileLock(lock)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise DataError(
                f"{path} is in use by another labeling server; open the address that it printed, or stop it"
            ) from None
        except OSError as error:
            reason = error.strerror
            raise DataError(f"{path} cannot be written ({reason}); choose another file for the labels") from error
        self._file: int | None = None
        try:
            content = read_table(path) if path.exists() else b""
            self.events, self._end = list[LabelEvent](), 0  # the length of the complete rows
            if not FIRST_LINE.startswith(content):  # a crash may have cut off the first line
                if not is_journal(content):
                    raise DataError(
                        f"{printable(str(path))} is not a journal of labels: its first line must be {HEADER.decode()}; "
                        "choose another file for the labels"
                    )
                self.events, self._end = parse_events(content, path)
        except BaseException:
            self._lock.release()
            raise
        self._size: int | None = len(content)  # of the file, with an incomplete row; None after a write that failed
        self._checksum, self._checked = zlib.crc32(content[: self._end]), 0  # of the complete rows, and when it was so

    def append(self, events: list[LabelEvent]) -> None:
        """Write rows to the disk; raise JournalError, with the file as before, if that is impossible."""
        if not events:
            return
        try:
            file = self._opened()
            before = FIRST_LINE
            if self._end:  # an editor may have dropped the last line break
                before = b"" if os.pread(file, 1, self._end - 1) == b"\n" else b"\n"
            content = rest = before + format_events(events)
            self._size = None
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        except OSError as error:
            with contextlib.suppress(OSError):  # if that fails, too, the next append tries again
                self._cut()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                message = f"the disk is full: nothing was saved to {self.path}; free some space and try again"
            else:
                reason = error.strerror or first_line(error)
                message = f"{self.path} cannot be written ({reason}); nothing was saved, try again"
            raise JournalError(message) from error
        self._end = self._size = self._end + len(content)
        self._checksum, self._checked = zlib.crc32(content, self._checksum), os.fstat(file).st_mtime_ns

    def _opened(self) -> int:
        """The file, created if necessary, without an incomplete last row; its rows must not get lost.

        Raise JournalError if another program has changed, replaced or deleted it, or its folder.
        """
        known = self.path if self._file is not None else self.path.parent
        if not os.path.lexists(known):
            raise JournalError(f"{known} was deleted by another program; stop the server and start it again")
        if self._file is None:
            self._file = os.open(self.path, OPEN, 0o644)
            sync_directory(self.path.parent)
        ours = os.fstat(self._file)
        same = os.path.samestat(ours, self.path.lstat()) and self._size in (None, ours.st_size)
        if same and ours.st_mtime_ns != self._checked:  # as many bytes as before, which may be others
            same = zlib.crc32(os.pread(self._file, self._end, 0)) == self._checksum
        if not same:
            raise JournalError(f"{self.path} was changed by another program; stop the server and start it again")
        self._cut()
        return self._file

    def _cut(self) -> None:
        """Remove what follows the complete rows."""
        if self._file is not None and self._size != self._end:
            os.ftruncate(self._file, self._end)
            self._size = self._end

    def copy(self, target: Path) -> None:
        """Write the complete rows to another file."""
        write_atomically(target, self.path.read_bytes()[: self._end] if self._end else FIRST_LINE)

    def close(self) -> None:
        """Close the file and let other processes use it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._lock.release()


class Mark(NamedTuple):
    """What is known about a file: its class, if it has a label, its part, and where the label comes from.

    The part is "train", "test", "none" (of none of the classes), or empty for a file that was skipped.
    """

    class_id: int | None
    part: str
    origin: str

    @property
    def skipped(self) -> bool:
        """Whether the file was skipped."""
        return self.class_id is None and self.part != "none"


class LabelState:
    """Classes by id, in the order in which they were added, labels of files, the latest last, and steps to undo.

    For each step, `undo` has the events, without a time, that undo it, and the file to show again. The state changes
    only through `apply`, with the events that are in the journal, so a session that is started again has the same one.
    The id of a class never changes.
    """

    def __init__(self) -> None:
        self.classes: dict[int, str] = {}
        self.marks: dict[str, Mark] = {}
        self.undo: list[tuple[list[LabelEvent], str]] = []
        self._next_id = 0
        self._former: dict[str, int] = {}  # ids of classes that were merged or removed
        self._renamed: dict[str, str] = {}

    def apply(self, events: list[LabelEvent]) -> None:
        """Apply the events of one step, and record how to undo it."""
        inverse: list[LabelEvent] = []
        for event in events:
            # What happened last is undone first.
            inverse[:0] = self._apply_label(event) if event.file else self._apply_class(event)
        origin = events[-1].origin
        if origin == "undo":
            del self.undo[-1:]
        elif origin != "given":
            self.undo.append((inverse, events[-1].file))

    def class_id(self, name: str) -> int | None:
        """The id of a class; None if there is no class of this name."""
        return next((number for number, known in self.classes.items() if known == name), None)

    def name_of(self, mark: Mark) -> str:
        """The name of a file's class; empty if it has none."""
        return "" if mark.class_id is None else self.classes[mark.class_id]

    def current_name(self, name: str) -> str:
        """The name that a class has now, if it was renamed or merged."""
        seen = {name}
        while self.class_id(name) is None and self._renamed.get(name, name) not in seen:
            name = self._renamed[name]
            seen.add(name)
        return name

    def _apply_label(self, event: LabelEvent) -> list[LabelEvent]:
        old = self.marks.pop(event.file, None)  # it is inserted again, as the latest one
        if event.label:
            self.marks[event.file] = Mark(self._ensure_class(event.label), event.part or "train", event.origin)
        elif event.part == "none" or event.origin == "skip":
            self.marks[event.file] = Mark(None, "none" if event.part == "none" else "", event.origin)
        return [self._restoring(event.file, old)]

    def _restoring(self, file: str, old: Mark | None) -> LabelEvent:
        """The event that gives a file its former label, or none."""
        return LabelEvent(file) if old is None else LabelEvent(file, self.name_of(old), old.part)

    def _apply_class(self, event: LabelEvent) -> list[LabelEvent]:
        """Add, remove, rename or merge a class."""
        old, new = event.old_name, event.label
        old_id, new_id = self.class_id(old), self.class_id(new)
        if not old:
            self._ensure_class(new)
            return [LabelEvent("", "", CLASS_PREFIX + new)] if new_id is None else []
        if old_id is None or old == new:
            return []
        if not new:
            self.marks = {file: mark for file, mark in self.marks.items() if mark.class_id != old_id}
            return self._removed(old_id)
        self._renamed[old] = new
        self._renamed.pop(new, None)
        if new_id is None:
            self.classes[old_id] = new
            return [LabelEvent("", old, CLASS_PREFIX + new)]
        moved = [(file, mark) for file, mark in self.marks.items() if mark.class_id == old_id]
        inverse = [self._restoring(file, mark) for file, mark in moved]
        self.marks |= {file: mark._replace(class_id=new_id) for file, mark in moved}
        return [*self._removed(old_id), *inverse]

    def _removed(self, class_id: int) -> list[LabelEvent]:
        name = self.classes.pop(class_id)
        self._former[name] = class_id
        return [LabelEvent("", name, CLASS_PREFIX)]

    def _ensure_class(self, name: str) -> int:
        """The id of a class, which is added if necessary; one that was removed gets its former id."""
        known = self.class_id(name)
        if known is not None:
            return known
        class_id = self._former.pop(name, None)
        if class_id is None:
            class_id, self._next_id = self._next_id, self._next_id + 1
        self.classes = dict(sorted({**self.classes, class_id: name}.items()))
        return class_id
