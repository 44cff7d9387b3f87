"""Measurements that are kept, and read again."""

import datetime
from pathlib import Path
from typing import Any

import pytest

from rankingmatch.bench.measurement import command_line, keep_rows, read_measurement
from rankingmatch.core.errors import RunError
from rankingmatch.core.versions import source_commit


def test_rows_are_read_as_they_were_kept_with_what_made_them(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"loss": "BatchMean", "seconds": [0.1, 1 / 3]}, {"loss": "BatchAll", "seconds": []}]
    keep_rows(tmp_path / "mine.json", "python mine.py", rows)
    kept = read_measurement(tmp_path / "mine.json")
    assert kept.rows == rows
    assert (kept.command, kept.commit) == ("python mine.py", source_commit())
    assert kept.date == datetime.date.today().isoformat()
    assert "CPU cores" in kept.machine
    assert len((tmp_path / "mine.json").read_text().splitlines()) == 4  # a line for each row: differences can be read


def test_a_command_does_not_say_where_its_results_are_kept() -> None:
    assert command_line(["python", "a b.py", "--keep", "docs/results", "--rounds", "3"]) == "python 'a b.py' --rounds 3"


@pytest.mark.parametrize("content", ["{", '{"rows": []}', '{"command": 1}', "[]"])
def test_a_file_with_something_else_is_an_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(content)
    with pytest.raises(RunError, match=r"mine.json cannot be read: .*measure it again"):
        read_measurement(tmp_path / "mine.json")
