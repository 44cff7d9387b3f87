"""What is shown between two steps."""

import json

import pytest

from rankingmatch.runs import display
from rankingmatch.runs.display import JsonLines, LogLines


def test_a_log_has_one_line_for_a_task_between_two_steps(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LogLines()
    for done in (1000, 2000, 3068):
        lines.progress("fitting the head", done, 3068)
    assert capsys.readouterr().err == "fitting the head: 1,000 of 3,068 images\n"


def test_a_task_that_takes_long_has_further_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "SECONDS_BETWEEN_LINES", 0.0)
    lines = LogLines()
    for done in (1, 2):
        lines.progress("fitting the head", done, None)
    assert capsys.readouterr().err == "fitting the head\n" * 2


def test_a_program_gets_an_event(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "SECONDS_BETWEEN_EVENTS", 0.0)
    JsonLines().progress("fitting the head", 1, 2)
    event = json.loads(capsys.readouterr().out)
    assert {name: event[name] for name in ("event", "task", "done", "total")} == {
        "event": "loading",
        "task": "fitting the head",
        "done": 1,
        "total": 2,
    }
