"""CSV files of labels: tables, and journals with a row for each labeling event, the last of which wins."""

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rankingmatch.core.errors import DataError, setting
from rankingmatch.core.names import csv_text, file_cell, name_in_cell, printable, text_cell
from rankingmatch.core.untrusted import BadFileError, read_bytes

MOST_TABLE = 2**28  # bytes
COLUMNS = ("file", "label", "part", "time", "origin")
HEADER = ",".join(COLUMNS).encode()
CLASS_PREFIX = "class:"  # in the column part of a row without a file
PARTS = ("", "train", "test", "none")
ORIGINS = ("hand", "accepted", "audit", "undo", "skip", "rename", "given", "kept")  # none is the beginning of another
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LabelEvent(NamedTuple):
    """One row of a journal."""

    file: str  # a path relative to the folder; empty for an event about a class
    label: str = ""  # the name of a class; empty for no label. Of an event about a class, its new name
    # "train", "test", or "none" for an image of none of the classes. Of an event about a class, ``class:OLD NAME`` if
    # it is renamed or merged, ``class:`` if it is added.
    part: str = ""
    time: str = ""  # when it happened, in UTC; rows with the same time are one step
    origin: str = ""  # how it came about: one of `ORIGINS`

    @property
    def old_name(self) -> str:
        """The former name of a class that this event renames; empty if it is about something else."""
        return "" if self.file else self.part.removeprefix(CLASS_PREFIX)


def is_journal(content: bytes) -> bool:
    """Whether a CSV file has exactly the columns of a journal."""
    return content.removeprefix(BYTE_ORDER_MARK).split(b"\n", 1)[0].rstrip(b"\r") == HEADER


def format_events(events: Iterable[LabelEvent]) -> bytes:
    """Rows of a journal, each ending with a line break; undecodable bytes of file names are kept."""
    rows = (event._replace(file=file_cell(event.file), label=text_cell(event.label)) for event in events)
    return csv_text(rows).encode("utf-8", "surrogateescape")


def parse_events(content: bytes, path: Path) -> tuple[list[LabelEvent], int]:
    """The events of a journal, and how many of its bytes they take.

    An incomplete last row, which a crash or a full disk leaves, is not among them.
    """
    length = content.rfind(b"\n") + 1
    quotes = content.count(b'"', 0, length)
    while quotes % 2:  # this line break is inside quotes
        before = content.rfind(b"\n", 0, length - 1) + 1
        quotes -= content.count(b'"', before, length)
        length = before
    events = _events(content[:length], path)
    try:  # an editor may have dropped the last line break
        last = _events(HEADER + b"\n" + content[length:], path)
    except DataError:
        last = []
    if len(last) == 1 and last[0].origin in ORIGINS:
        return [*events, *last], len(content)
    return events, length


def _events(content: bytes, path: Path) -> list[LabelEvent]:
    text = content.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "surrogateescape")
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    events = []
    try:
        for row in filter(None, islice(rows, 1, None)):
            file, label, *others = (row + [""] * len(COLUMNS))[: len(COLUMNS)]
            events.append(event := LabelEvent(file.removeprefix("./"), name_in_cell(label), *others))
            if event.file:
                _check_part(event.part, path, rows.line_num)
            elif not event.part.startswith(CLASS_PREFIX):
                raise DataError(f"{path}, line {rows.line_num}: the file is missing")
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num}: this is not a row of a CSV file ({error})") from error
    return events


def _check_part(part: str, path: Path, line: int) -> None:
    if part not in PARTS:
        raise DataError(f"{path}, line {line}: part is '{printable(part)}'; it must be train, test or none")


def replay(events: Iterable[LabelEvent]) -> dict[str, tuple[str, str]]:
    """The label and the part of every file in a journal; the label is empty if it was taken back."""
    labels: dict[str, tuple[str, str]] = {}
    for event in events:
        if event.file:
            labels[event.file] = (event.label, event.part)
        elif event.old_name and event.label:
            for file, (label, part) in labels.items():
                if label == event.old_name:
                    labels[file] = (event.label, part)
    return labels


def read_table(table: Path) -> bytes:
    """The content of a file of labels, a regular one of bounded size."""
    try:
        return read_bytes(table, MOST_TABLE)
    except (BadFileError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{setting('labels_csv')} is {table}, which cannot be read ({reason})") from error


def csv_rows(table: Path, content: bytes) -> Iterator[tuple[int, str, str, str]]:
    """Line number, file, label and part of each row of a CSV file; the column part may be missing."""
    try:
        rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        if not {"file", "label"} <= set(rows.fieldnames or ()):
            raise DataError(f"{table} must have the columns file and label in its first line, separated by commas")
        for row in rows:
            part = (row.get("part") or "").strip()
            _check_part(part, table, rows.line_num)
            yield rows.line_num, row["file"] or "", name_in_cell((row["label"] or "").strip()), part
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{setting('labels_csv')} is {table}, which is not a CSV file in UTF-8 ({error})") from error
