"""Names that nobody would choose: they are shown as they are, survive every file, and are never taken for commands."""

import csv
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_folders import class_folders, picture
from rich.progress import Progress

from rankingmatch.cli import main
from rankingmatch.core.atomic import write_json
from rankingmatch.core.errors import DataError
from rankingmatch.core.names import csv_text, file_cell, name_in_cell, plain_console, task_column, text_cell
from rankingmatch.data import find_source
from rankingmatch.data.folder_contents import scan_folder
from rankingmatch.data.label_journal import COLUMNS, LabelEvent, format_events, parse_events
from rankingmatch.runs.directory import Run
from rankingmatch.runs.predict import csv_writer, read_names

QUICK = ["--steps", "4", "--batch-size", "4", "--mu", "1", "--network", "wrn-10-1", "--image-size", "8"]
QUICK += ["--threads", "1", "--evaluate-every", "2", "--no-pretrained", "--method", "supervised"]
NOT_UTF8 = os.fsdecode(b"caf\xe9")
STRANGE = (NOT_UTF8, "[]", "[bold red]b", "=1+1", "@a", "line\nbreak", "\x1b[31mred", "a\rb", ":smile:", "é")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def strange_folder(root: Path) -> Path:
    """Class folders with strange names, in a folder whose name is strange, too."""
    for number, name in enumerate(STRANGE):
        for part in ("labeled", "test"):
            for index in range(2):
                picture(root / part / name / f"{part}{index}.png", (20 * number, 100, 100), (8, 8))
    (root / "labeled/\x1b[31m\nempty").mkdir()
    return root


def test_a_run_with_strange_names_is_trained_resumed_and_used(
    place: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    root = strange_folder(place / os.fsdecode(b"[b]\xff"))
    run = place / os.fsdecode(b"run [/b] \xff")
    main(["train", str(root), *QUICK, "--out", str(run), "--stop-after", "2"])
    main(["train", "--resume", "--out", str(run)])
    main(["evaluate", str(run)])
    main(["predict", str(run), str(root / "test"), "--out", "table.csv", "--probabilities"])
    main(["predict", str(run), str(root / "test"), "--sort-into", "sorted", "--out", "other.csv"])
    main(["export", str(run), "model.onnx"])
    main(["report", str(run)])
    said = "".join(capfd.readouterr()) + caplog.text
    assert "\x1b[31m" not in said  # nor was anything else taken for a color
    skipped = r"skipped the class '\x1b[31m\nempty'"
    for shown in ("[]", "[bold red]b", r"caf\xe9", r"line\nbreak", ":smile:", skipped):
        assert shown in said, shown
    assert set(Run(run).result().to_json()) >= {"test_error"}  # type: ignore[union-attr]
    classes = set(scan_folder(root).classes)
    assert len(classes) == len(STRANGE)
    with Path("table.csv").open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(STRANGE)
    assert {name_in_cell(row["label"]) for row in rows} <= classes
    assert all(Path(row["file"]).is_file() for row in rows)
    assert len(list(Path("sorted").rglob("*.png"))) == len(rows)


def test_two_names_that_would_look_the_same_are_refused(place: Path) -> None:
    for name in ("red", NOT_UTF8, r"caf\xe9"):
        picture(place / "photos" / name / "1.png")
    with pytest.raises(DataError, match=r"'caf\\xe9'"):
        find_source("photos")


# --- terminals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["[/x]", "[bold red]x", "[link=x]y[/link]", ":smile:", "[0m", "100%"])
def test_nothing_in_a_text_is_taken_for_markup(name: str) -> None:
    console = plain_console()
    with console.capture() as captured:
        console.print(name)
    assert captured.get() == f"{name}\n"
    with Progress(task_column(), console=console) as bars:
        bars.add_task(name, total=1)
        assert str(task_column().render(bars.tasks[0])) == name


def test_only_one_module_makes_consoles() -> None:
    """Every other one would take names for markup."""
    source = Path(__file__).parents[2] / "src/rankingmatch"
    made = [path.name for path in source.rglob("*.py") if "Console(" in path.read_text()]
    assert made == ["names.py"]


# --- tables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["=1+1", "+a", "-x", "@SUM(A1)", "\tx", "\rx", "=cmd|' /C calc'!A0", "'=1"])
def test_no_cell_is_a_formula(name: str) -> None:
    assert text_cell(name) == f"'{name}"
    assert not file_cell(name).startswith(("=", "+", "-", "@", "\t", "\r"))
    assert os.path.normpath(file_cell(name)) == name
    for other in ("cat", "-1", "+3.5", "a=b", "", "'quoted'", "1e5"):
        assert text_cell(other) == other


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0")), min_size=1))
def test_every_row_is_read_as_it_was_written(names: list[str]) -> None:
    text = csv_text([map(text_cell, [*names, "end"])])
    (row,) = csv.reader(io.StringIO(text, newline=""))
    assert [name_in_cell(cell) for cell in row] == [*names, "end"]


@given(st.sampled_from(["=a.png", "-b.png", "c/d.png", "@é.png"]), st.sampled_from(["=x", "'=x", "-1", "a\rb", "é"]))
def test_a_journal_keeps_names_that_look_like_formulas(file: str, label: str) -> None:
    event = LabelEvent(file, label, "train", "1", "hand")
    content = ",".join(COLUMNS).encode() + b"\n" + format_events([event])
    assert parse_events(content, Path("journal"))[0] == [event]
    (_, cells) = csv.reader(io.StringIO(content.decode(), newline=""))
    assert not any(cell.startswith(("=", "@")) for cell in cells)


def test_labels_written_for_a_spreadsheet_are_read(place: Path) -> None:
    class_folders(place / "photos", each=2, classes=("red", "blue"))
    rows = [("file", "label"), ("red/photos-red-0.png", text_cell("=a")), ("blue/photos-blue-0.png", "b")]
    for mark in ("", "\ufeff"):
        Path("labels.csv").write_text(mark + csv_text(rows))
        assert scan_folder(place / "photos", labels_csv=place / "labels.csv").classes == ("=a", "b")


# --- names from standard input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "end", "names"),
    [
        (b"a\r\nb\r", b"\n", ["a", "b"]),
        (b"\xef\xbb\xbfa\nb\n", b"\n", ["a", "b"]),
        (b"a\n\xef\xbb\xbfb\n", b"\n", ["a", "\ufeffb"]),
        (b"a\r\0b\r", b"\0", ["a\r", "b\r"]),
        (b"\xef\xbb\xbfa\0", b"\0", ["\ufeffa"]),
        (b"\n\n \n", b"\n", [" "]),
        (b"caf\xe9\n", b"\n", [NOT_UTF8]),
        (b"", b"\n", []),
    ],
)
def test_names_are_read_as_other_systems_write_them(content: bytes, end: bytes, names: list[str]) -> None:
    assert list(read_names(io.BytesIO(content), end)) == names


# --- formats that are not read --------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["heic", "HEIF", "dng", "jxl", "svg"])
def test_a_folder_of_images_of_other_formats_says_what_to_do(ending: str, place: Path) -> None:
    for name in ("cat", "dog"):
        (place / "photos" / name).mkdir(parents=True)
        (place / "photos" / name / f"1.{ending}").write_bytes(b"x")
    with pytest.raises(DataError, match=rf"2 \.{ending.lower()}; convert .* JPEG"):
        find_source("photos")


def test_json_holds_every_path(place: Path) -> None:
    write_json(place / "file.json", {"path": NOT_UTF8, "é": "é"})
    assert "é" in (place / "file.json").read_text(encoding="utf-8")
    assert json.loads((place / "file.json").read_bytes()) == {"path": NOT_UTF8, "é": "é"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_names_in_a_table_on_a_terminal_are_only_text() -> None:
    text = Terminal()
    csv_writer(text, ("\x1b[31mred", "b"), probabilities=True)("\x1b]0;x\x07.png", np.array([0.9, 0.1]))
    assert (
        text.getvalue()
        == "file,label,confidence,\\x1b[31mred,b\n\\x1b]0;x\\x07.png,\\x1b[31mred,0.900000,0.900000,0.100000\n"
    )
