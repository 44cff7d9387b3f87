"""What is shown of work that takes long: to a program, on a terminal, and in a log."""

import os
import signal
import time
from pathlib import Path

import pytest
from image_folders import class_folders

from rankingmatch.cli import main
from rankingmatch.data import under_way
from rankingmatch.runs import display
from rankingmatch.runs.display import LiveDisplay, loading_progress

QUICK = ["--steps", "4", "--batch-size", "4", "--mu", "1", "--network", "wrn-10-1", "--threads", "1"]


def test_a_log_says_what_takes_long_and_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(display, "PATIENCE", 0.02)
    monkeypatch.setattr(display, "SECONDS_BETWEEN_LINES", 0.02)

    def wait_for(line: str) -> None:
        printed, last = "", time.monotonic() + 60
        while line not in printed.splitlines() and time.monotonic() < last:
            printed += capsys.readouterr().err
        assert line in printed.splitlines()

    with loading_progress() as progress:
        progress("reading photos", 7, 10)
        wait_for("reading photos: 7 of 10")
        progress("reading photos", 10, 10)
        with under_way(progress, "writing"):
            wait_for("writing …")


def test_bars_are_there_while_something_is_under_way() -> None:
    live = LiveDisplay()
    live.progress("reading [red]", 1, 2)
    live.progress("computing", 1, 1)
    assert live._bars is not None
    live.progress("reading [red]", 2, 2)
    assert live._bars is None  # nothing is left beside the display of the training
    live.close()


def test_a_training_reports_each_of_its_stages_and_how_to_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class_folders(tmp_path / "photos", size=(8, 8))
    tasks: list[str] = []
    monkeypatch.setattr(display.LogLines, "progress", lambda self, task, done, total: tasks.append(task))
    folder, run = str(tmp_path / "photos"), str(tmp_path / "run")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does it in the background of a script
    try:
        main(["train", folder, *QUICK, "--no-pretrained", "--method", "supervised", "--out", run])
    finally:
        signal.signal(signal.SIGINT, before)
    assert f"to stop (SIGTERM): kill {os.getpid()}\n" in capsys.readouterr().err
    assert list(dict.fromkeys(tasks)) == [
        f"looking through {folder}",
        "looking for changes in photos",
        "reading photos",
        "writing the report: predictions",
        "writing the report",
    ]
