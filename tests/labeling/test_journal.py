"""The journal: nothing that was saved is ever lost, whatever happens to the last row."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankingmatch.core.errors import DataError
from rankingmatch.data.label_journal import LabelEvent, format_events, parse_events
from rankingmatch.labeling.journal import Journal, JournalError

HEADER = b"file,label,part,time,origin\n"
ROWS = [LabelEvent("a.png", "cat", "train", "1", "hand"), LabelEvent('b,\n"b.png', "dog", "train", "2", "hand")]
WHOLE = HEADER + format_events(ROWS)
# Names of files have any bytes but / and NUL; Python shows those that are not UTF-8 as lone surrogates.
names = st.binary(min_size=1, max_size=12).filter(lambda name: b"/" not in name and b"\0" not in name).map(os.fsdecode)
labels = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
events = st.builds(
    LabelEvent, names, labels, st.sampled_from(["train", "test", "none", ""]), labels, st.sampled_from(["hand", "undo"])
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "labels.csv"


@given(st.lists(events, min_size=1, max_size=4), st.data())
def test_rows_are_read_as_written_and_one_that_was_cut_off_takes_no_other_with_it(
    rows: list[LabelEvent], data: Any
) -> None:
    complete, last = HEADER + format_events(rows[:-1]), format_events(rows[-1:])
    cut = data.draw(st.integers(0, len(last)))
    # Without the line break alone, the row is complete.
    expected = (rows, len(complete) + cut) if cut >= len(last) - 1 else (rows[:-1], len(complete))
    assert parse_events(complete + last[:cut], Path("x")) == expected


@pytest.mark.parametrize(
    ("before", "rows"),
    [
        *((torn, []) for torn in (b"", b"fi", HEADER[:-1], HEADER)),  # the first line is written again
        *((WHOLE + torn, ROWS) for torn in (b"c.png,ca", b'"c.p\nng","ca', b'"c""', b"c.png,cat,train,3,han")),
        (WHOLE[:-1], ROWS),  # an editor dropped the line break
    ],
)
def test_a_torn_row_is_cut_off_before_the_next_one(path: Path, before: bytes, rows: list[LabelEvent]) -> None:
    path.write_bytes(before)
    journal = Journal(path)
    assert journal.events == rows
    assert path.read_bytes() == before  # nothing is written before there is something to write
    new = [LabelEvent(name, "cat", "train", "4", "hand") for name in ("d.png", "e.png")]
    journal.append(new[:1])
    journal.append(new[1:])
    journal.close()
    assert path.read_bytes() == HEADER + format_events([*rows, *new])


@pytest.mark.parametrize("space", [0, 5, 1000])
def test_a_full_disk_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch, space: int) -> None:
    journal = Journal(path)
    journal.append(ROWS[:1])
    before, left, write = path.read_bytes(), [space], os.write

    def full(*_: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    def write_while_there_is_space(file: int, content: bytes) -> int:
        count = write(file, content[: left[0]]) if left[0] else full()
        left[0] -= count
        return count

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_while_there_is_space)
        patch.setattr(os, "fsync", full)  # some file systems notice only now
        with pytest.raises(JournalError, match="the disk is full"):
            journal.append(ROWS[1:])
    assert path.read_bytes() == before
    journal.append(ROWS[1:])
    journal.close()
    assert path.read_bytes() == WHOLE


def test_a_second_server_is_refused_in_one_sentence(path: Path) -> None:
    journal = Journal(path)
    with pytest.raises(DataError, match="in use by another labeling server"):
        Journal(path)
    journal.close()
    Journal(path).close()


@pytest.mark.parametrize("before", [b"", WHOLE, WHOLE + b"c.png,ca"])
@pytest.mark.parametrize("added", [[], ROWS])
def test_changes_of_another_program_are_noticed_and_never_lost(
    path: Path, before: bytes, added: list[LabelEvent]
) -> None:
    path.write_bytes(before)
    journal = Journal(path)
    journal.append(added)
    os.utime(path, (1, 1))  # with the same content
    journal.append(ROWS[:1])
    good = path.read_bytes()
    for other in (good + b"x.png,dog,train,,\n", good.replace(b"cat", b"cow")):  # also of the same length
        path.write_bytes(other)
        os.utime(path, (2, 2))
        with pytest.raises(JournalError, match="was changed by another program"):
            journal.append(ROWS[1:])
        assert path.read_bytes() == other
    path.unlink()
    with pytest.raises(JournalError, match="was deleted by another program"):
        journal.append(ROWS[1:])
    journal.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello\n", "is not a journal of labels"),
        (b"\xff\xd8\xff" * 20, "is not a journal of labels"),
        (HEADER + b"a.png,cat,validation,,\n", "line 2: part is 'validation'; it must be train, test or none"),
        (HEADER + b",cat,train,,\n", "line 2: the file is missing"),
        (HEADER + b'"a"b,cat,train,,\n', "line 2: this is not a row of a CSV file"),
    ],
)
def test_another_file_is_refused_and_left_alone(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        Journal(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["labels.csv", ".labels.csv.lock"])
def test_a_link_is_not_followed(path: Path, name: str) -> None:
    other = path.with_name("other")
    other.write_bytes(HEADER)
    path.with_name(name).symlink_to(other)
    with pytest.raises(DataError, match="is a link"):
        Journal(path)
    path.with_name(name).unlink()
    journal = Journal(path)
    path.symlink_to(other)
    with pytest.raises(JournalError, match="cannot be written"):
        journal.append(ROWS)
    journal.close()
    assert other.read_bytes() == HEADER
