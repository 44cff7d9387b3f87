"""`minutes`: the steps, views and image size that fit into a given time, from measured seconds."""

from pathlib import Path

import pytest
from image_folders import class_folders

from rankingmatch.core.errors import ConfigError
from rankingmatch.runs import budget
from rankingmatch.runs.config import Plan
from rankingmatch.runs.train import Request, prepare, train


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of photographs, and a machine on which an image of 128×128 costs a quarter of the time."""
    class_folders(tmp_path / "photos", size=(80, 80))

    def slower_if_larger(plan: Plan) -> float:
        size = plan.config.data.image_size
        return 1.0 if size == budget.SMALL_SIDE else 4.0

    monkeypatch.setattr(budget, "measure", lambda plan: (slower_if_larger(plan) / 2, 0.5))
    monkeypatch.setattr(budget, "seconds_per_view", lambda plan: 10 * slower_if_larger(plan))
    return tmp_path / "photos"


def planned(photos: Path, minutes: float) -> Plan:
    return prepare(Request(str(photos), minutes=minutes, out=photos.parent / "run"))[1]


def test_the_steps_fill_the_time(photos: Path) -> None:
    plan = planned(photos, 6)
    views, steps = plan.config.views.bank_views, plan.config.training.steps
    assert steps is not None
    assert views == 2
    seconds = budget.STARTING + views * 40 + steps * (2 + 0.5 / 20)  # it is evaluated every 20 steps
    assert 6 * 60 - 3 < seconds <= 6 * 60


def test_little_time_means_fewer_views(photos: Path) -> None:
    plan = planned(photos, 3.3)
    assert plan.config.views.bank_views == 1
    assert plan.config.data.image_size != budget.SMALL_SIDE


def test_very_little_time_means_smaller_images(photos: Path) -> None:
    plan = planned(photos, 2)
    assert plan.config.data.image_size == budget.SMALL_SIDE
    assert plan.config.training.steps == int((110 - 2 * 10) / 0.525)


def test_fine_tuning_is_at_most_four_times_as_long_as_usual(photos: Path) -> None:
    usual = prepare(Request(str(photos), out=photos.parent / "usual"))[1].config.training.steps
    assert usual is not None
    assert planned(photos, 1e6).config.training.steps == 4 * usual


@pytest.mark.parametrize(
    ("minutes", "settings", "words"),
    [
        (0.3, {}, "minutes is 0.3, but a single step, with everything before it, takes"),
        (0, {}, "minutes is 0; give a positive number"),
        (float("nan"), {}, "minutes is nan; give a positive number"),
        (5, {"steps": 3}, "minutes and steps are mutually exclusive"),
        (5, {"epochs": 3.0}, "minutes and epochs are mutually exclusive"),
    ],
)
def test_what_cannot_be_done_gets_a_sentence(
    photos: Path, minutes: float, settings: dict[str, int], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        prepare(Request(str(photos), minutes=minutes, out=photos.parent / "run", settings=settings))


def test_a_run_resumes_as_it_was_planned(tmp_path: Path) -> None:
    run = train("digits", method="supervised", labels=40, out=tmp_path / "run", steps=2, threads=1, report=False)
    with pytest.raises(ConfigError, match="minutes is for a new run"):
        prepare(Request("digits", out=run.path, resume=True, minutes=5))


def test_steps_are_measured_on_this_machine(tmp_path: Path) -> None:
    settings = {"network": "small", "batch_size": 4, "mu": 1, "threads": 1, "labels": 40}
    plans = [
        prepare(Request("digits", out=tmp_path / "run", minutes=minutes, settings=settings))[1] for minutes in (0.3, 3)
    ]
    few, many = (plan.config.training.total_steps for plan in plans)
    assert 0 < few < many
