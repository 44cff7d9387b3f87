"""`minutes`: as many steps as the first ones show to fit; the run is the same as one with this number of steps."""

import time
from pathlib import Path
from typing import Any

import pytest
from image_folders import class_folders

from rankingmatch.core.errors import ConfigError
from rankingmatch.data import Split
from rankingmatch.runs import job
from rankingmatch.runs.config import resolve
from rankingmatch.runs.train import train
from rankingmatch.training.loop import evaluate
from rankingmatch.training.records import Evaluation
from rankingmatch.training.state import State

TINY: dict[str, Any] = {"network": "wrn-10-1", "batch_size": 4, "mu": 1, "threads": 1, "labels": 40, "report": False}


@pytest.mark.parametrize("method", ["rankingmatch-bm", "remixmatch"])
def test_the_run_is_that_of_its_number_of_steps(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "MOST_STEPS", 12)
    timed = train("digits", method=method, out=tmp_path / "timed", minutes=10, **TINY)
    counted = train("digits", method=method, out=tmp_path / "counted", steps=12, **TINY)
    assert timed.config() == counted.config()
    assert timed.model_path.read_bytes() == counted.model_path.read_bytes()
    with pytest.raises(ConfigError, match="minutes is for a new run"):
        train("digits", out=timed.path, resume=True, minutes=5)


def test_more_time_is_more_steps() -> None:
    plan = resolve("digits", None, {name: value for name, value in TINY.items() if name != "report"})
    split = job.load_split(plan)
    state = job.ready_state(plan.config, split)
    few, many = (job._steps_until(time.monotonic() + seconds, state, split, plan.config) for seconds in (30, 3000))
    assert 0 < few < many
    assert state.step == 0


def test_time_for_evaluations_and_the_report_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(state: State, split: Split) -> Evaluation:
        time.sleep(0.2)
        return evaluate(state, split)

    monkeypatch.setattr(job, "evaluate", slow)
    with pytest.raises(ConfigError, match="minutes leaves 0"):
        train("digits", out=tmp_path / "run", minutes=(job.REPORT + 20 * 0.2) / 60, **TINY)
    assert not (tmp_path / "run/config.json").exists()


def test_fine_tuning_is_at_most_so_many_times_as_long_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "LONGEST", 0.1)
    class_folders(tmp_path / "photos", size=(80, 80))
    given: dict[str, Any] = {"labels": 6, "image_size": 64, "tune": "head", "batch_size": 2, "threads": 1}
    given |= {"evaluate_every": 1000, "report": False}
    run = train(tmp_path / "photos", out=tmp_path / "run", minutes=10, **given)
    assert run.result().steps == 0.1 * 60  # type: ignore[union-attr]
