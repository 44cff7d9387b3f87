"""What is shown of work that takes long: to a program, on a terminal, and in a log."""

import json
import os
import time
from pathlib import Path

import pytest
from image_folders import class_folders

from rankingmatch.cli import main
from rankingmatch.data import under_way
from rankingmatch.runs import display
from rankingmatch.runs.display import JsonLines, LiveDisplay, loading_progress
from rankingmatch.runs.report import write_report

QUICK = ["--steps", "4", "--batch-size", "4", "--mu", "1", "--network", "wrn-10-1", "--threads", "1"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "PATIENCE", 0.02)
    monkeypatch.setattr(display, "SECONDS_BETWEEN_LINES", 0.02)


def test_a_log_says_what_takes_long(impatient: None, capsys: pytest.CaptureFixture[str]) -> None:
    with loading_progress() as progress:
        progress("reading photos", 0, 10)
        time.sleep(0.3)
        progress("reading photos", 7, 10)
        time.sleep(0.3)
        progress("reading photos", 10, 10)
        with under_way(progress, "writing"):
            time.sleep(0.3)
        printed = capsys.readouterr().err.splitlines()
        time.sleep(0.3)
    assert list(dict.fromkeys(printed)) == ["reading photos: 0 of 10", "reading photos: 7 of 10", "writing …"]
    assert len(capsys.readouterr().err.splitlines()) <= 1  # after the end, at most the line that was being printed


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with loading_progress() as progress, under_way(progress, "reading"):
        progress("reading photos", 10, 10)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("how", [{"quiet": True}, {"json_lines": True}])
def test_quiet_and_json_have_no_lines(
    how: dict[str, bool], impatient: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with loading_progress(**how) as progress, under_way(progress, "reading"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_a_program_gets_an_event(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "SECONDS_BETWEEN_EVENTS", 0.0)
    JsonLines().progress("fitting the head", 1, 2)
    event = json.loads(capsys.readouterr().out)
    assert event.pop("format")
    assert event == {"event": "loading", "task": "fitting the head", "done": 1, "total": 2}


def test_bars_are_there_while_something_is_under_way() -> None:
    live = LiveDisplay()
    live.progress("reading [red]", 1, 2)
    live.progress("computing", 1, 1)
    assert live._bars is not None
    live.progress("reading [red]", 2, 2)
    assert live._bars is None  # nothing is left beside the display of the training
    live.close()


def test_a_training_reports_each_of_its_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    class_folders(tmp_path / "photos", size=(8, 8))
    tasks: list[str] = []
    monkeypatch.setattr(display.LogLines, "progress", lambda self, task, done, total: tasks.append(task))
    folder, run = str(tmp_path / "photos"), str(tmp_path / "run")
    main(["train", folder, *QUICK, "--no-pretrained", "--method", "supervised", "--out", run])
    assert list(dict.fromkeys(tasks)) == [
        f"looking through {folder}",
        "looking for changes in photos",
        "reading photos",
        "writing the report: predictions",
        "writing the report",
    ]


def test_a_report_reports_its_stages(tmp_path: Path) -> None:
    main(["train", "digits", *QUICK, "--quiet", "--no-report", "--out", str(tmp_path / "run")])
    tasks: list[tuple[str, int, int | None]] = []
    write_report([tmp_path / "run"], points=50, progress=lambda *report: tasks.append(report))
    assert tasks[0] == ("writing the report: predictions of rankingmatch-bm", 0, None)
    done = [done for task, done, total in tasks if task == "writing the report"]
    assert done == list(range(len(done)))
    assert tasks[-1] == ("writing the report", len(done) - 1, len(done) - 1)
    assert os.path.getsize(tmp_path / "run/report.html") > 1000  # noqa: PTH202
