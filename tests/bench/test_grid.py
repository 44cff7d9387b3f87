"""Grids carried out: several at a time, interrupted, measured, listed."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress
from tiny import RECIPE_TEXT, models

from rankingmatch.bench import BenchOptions, OutputFiles, run_recipe, run_recipes
from rankingmatch.bench.grid import GridDisplay, GridProgress, Pace, grid_display, run_grid
from rankingmatch.bench.recipe import Cell, cells, parse_recipe
from rankingmatch.core.errors import ConfigError, DataError, Interrupted, RankingMatchError
from rankingmatch.core.metrics import Errors
from rankingmatch.core.names import task_column
from rankingmatch.runs.directory import Run
from rankingmatch.runs.result import Result

TEXT = RECIPE_TEXT + '[paper]\nsupervised = ["12.00"]\n'
RECIPE = parse_recipe("mine", TEXT)


def planned() -> list[Cell]:
    return cells(RECIPE, folds=None, scale=None, given={})


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe, run one after the other."""
    out = tmp_path_factory.mktemp("once")
    run_recipe(RECIPE, out=out)
    return out


@pytest.mark.slow
def test_several_at_a_time_give_the_identical_runs(once: Path, tmp_path: Path) -> None:
    outcome = run_recipe(RECIPE, out=tmp_path, jobs=2)
    assert len(outcome.runs) == 4
    assert models(tmp_path) == models(once)


def test_finished_runs_are_kept(once: Path) -> None:
    made = {path: path.stat().st_mtime_ns for path in once.rglob("*.safetensors")}
    outcome = run_recipe(RECIPE, out=once)
    assert made == {path: path.stat().st_mtime_ns for path in once.rglob("*.safetensors")}
    (table,) = outcome.tables
    assert [row.name for row in table.rows] == ["supervised", "fixmatch-ra"]
    assert table.rows[0].paper == ("12.00",)
    assert all(figure is not None and len(figure.values) == 2 for row in table.rows for figure in row.figures)


class StopsAfter(GridDisplay):
    """A display that stops the grid, as a signal would."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def update(self, name: str, step: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise Interrupted("enough")


def test_an_interrupted_grid_goes_on_to_the_identical_runs(once: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run_grid(planned(), tmp_path / "mine", StopsAfter(6))
    run_recipe(RECIPE, out=tmp_path)
    assert models(tmp_path) == models(once)


@pytest.mark.slow
def test_a_mistake_in_a_process_of_its_own_comes_back_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankingmatch.bench.grid.load_datasets", lambda grid: None)  # which would find it here
    recipe = parse_recipe("bad", TEXT.replace("[settings]", '[settings]\nsplit = "nowhere.json"'))
    with pytest.raises(RankingMatchError, match=r"split is .*nowhere.json"):
        run_recipe(recipe, out=tmp_path, jobs=2)


def test_other_settings_in_the_same_place_are_refused_and_a_scale_has_its_own(once: Path) -> None:
    with pytest.raises(ConfigError, match="other settings"):
        run_recipe(RECIPE, out=once, settings={"mu": 2})
    outcome = run_recipe(RECIPE, out=once, scale="tiny")
    assert outcome.directory.name == "mine-tiny"
    assert "at scale tiny" in outcome.tables[0].title
    assert len(outcome.runs) == 2  # one fold


# --- what it costs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def costs_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measured")


@pytest.mark.slow
@pytest.mark.parametrize(("per", "count"), [("epoch", 2), ("batch", 4)])
def test_time_and_memory_are_measured_per_epoch_and_per_batch(
    per: str, count: int, costs_out: Path, tmp_path: Path
) -> None:
    text = f'measure = "{per}"\n' + RECIPE_TEXT.replace("folds = 2", "folds = 1")
    text += 'measure_steps = true\nlog_every = 1\nevaluate_every = 2\n[paper.seconds]\nsupervised = ["1.0"]\n'
    outcome = run_recipe(parse_recipe("costs", text), out=costs_out)  # one process for each run
    (seconds, peak), papers = [table.rows[0].figures[0] for table in outcome.tables], outcome.tables[0].rows[0].paper
    assert papers == ("1.0",)
    costs = Run(outcome.directory / outcome.grid[0].directory).step_costs()
    assert costs.shape == (4, 3)
    assert seconds is not None
    expected = 1000 * costs[:, 1] if per == "batch" else costs[:, 1].reshape(2, 2).sum(1)
    assert seconds.values == pytest.approx(expected.tolist())
    assert peak is not None
    assert len(peak.values) == count
    assert all(10 < value < 100_000 for value in peak.values)  # MB
    OutputFiles(figures=tmp_path / "figures").write([outcome], "bench")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"costs-{quantity}.{ending}" for quantity in ("seconds", "memory") for ending in ("svg", "png")
    }


def test_costs_of_steps_that_are_done_again_are_forgotten(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for step in (1, 2, 3):
        run.append_step(step, 0.5 * step, 1000 * step)
    run.go_back(2)
    assert np.array_equal(run.step_costs(), [[1, 0.5, 1000], [2, 1.0, 2000]])


# --- progress -----------------------------------------------------------------------------------------------


def test_the_time_left_follows_the_pace_of_each_row() -> None:
    first, second, *_ = names = [cell.directory for cell in planned()]  # supervised, fixmatch-ra, twice; 4 steps each
    assert len(names) == 4
    pace = Pace(planned(), jobs=1)
    assert pace.seconds_left() is None
    pace.update(first, left=3, now=0.0)
    pace.update(first, left=0, now=3.0)  # a second a step
    pace.finish(first)
    assert pace.seconds_left() == pytest.approx(3 * 4 * 1.0)  # nothing else is known
    pace.update(second, left=3, now=3.0)
    pace.update(second, left=1, now=13.0)  # five seconds a step
    assert pace.seconds_left() == pytest.approx(1 * 5 + 4 * 1 + 4 * 5)


def test_bars_follow_the_runs_and_a_line_is_printed_at_the_end_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third, _ = (cell.directory for cell in planned())
    with grid_display(planned(), [cell.directory for cell in planned()], 1, quiet=False) as display:
        display.update(first, 1)
    assert capsys.readouterr().err == ""
    with Progress(task_column(), disable=True) as bars:
        display = GridProgress(planned(), planned()[1:], 2, bars)
        display.update(second, 2)
        display.update(third, 3)
        assert [task.completed for task in bars.tasks] == [1, 2, 3]
        display.finish(second, Result("digits", "m", 40, 0, 10, 62.0, Errors(3.5)))
        display.finish(third, Result("digits", "m", 40, 0, 10, 2.0, diverged_at=70))
        assert [task.completed for task in bars.tasks] == [3]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("[2/4] fixmatch-ra, Digits, 40 labels, fold 0: test error 3.50% in 1:02;")
    assert "NaN-70" in shown[1]


# --- output -------------------------------------------------------------------------------------------------


def bench(once: Path, capsys: pytest.CaptureFixture[str], files: OutputFiles | None = None, **options: Any) -> str:
    recipe = once / "mine.toml"
    recipe.write_text(TEXT)
    run_recipes([str(recipe)], BenchOptions(**{"out": once, **options}), files or OutputFiles(), "the command")
    return capsys.readouterr().out


def test_the_tables_are_written_in_every_form(once: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = OutputFiles(tmp_path / "t.md", tmp_path / "t.csv", tmp_path / "t.tex")
    assert "Mine" in bench(once, capsys, files=files)
    page = (tmp_path / "t.md").read_text()
    for words in ("Written by `the command` on ", "(12.00)"):
        assert words in page
    (fold,) = [line for line in page.splitlines() if line.startswith("| supervised | Digits, 40 labels | ")]
    assert fold.count(",") == 2  # the column's own, and the one between two folds
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 3
    assert "\\toprule" in (tmp_path / "t.tex").read_text()
    lines = [json.loads(line) for line in bench(once, capsys, as_json=True).splitlines()]
    grid = [("supervised", 0), ("fixmatch-ra", 0), ("supervised", 1), ("fixmatch-ra", 1)]
    assert [(line["row"], line["fold"]) for line in lines] == grid
    with pytest.raises(ConfigError, match="csv nowhere"):  # before anything runs
        OutputFiles(csv=Path("nowhere/t.csv")).check()


def test_a_dry_run_lists_the_runs_and_the_seconds_of_finished_ones(
    once: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = bench(once, capsys, out=tmp_path, keep=tmp_path / "new", dry_run=True).splitlines()
    assert shown[1] == "  supervised, Digits, 40 labels: 2 × 4 steps"
    assert shown[3] == "  4 runs"
    run = Run(once / "mine" / "digits-40-supervised-1")
    shutil.copytree(run.path, tmp_path / "mine" / run.path.name)
    first, second = bench(once, capsys, out=tmp_path, keep=tmp_path, dry_run=True, as_json=True).splitlines()
    result = run.result()
    assert result is not None
    assert json.loads(first) == {
        **{"recipe": "mine", "scale": "paper", "row": "supervised", "column": "Digits, 40 labels"},
        **{"runs": 2, "steps": 4, "finished": 1, "seconds": result.seconds},
    }
    assert json.loads(second)["seconds"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]  # nothing is run, and nothing is kept


# --- several recipes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("labels = [40]\n[datasets.fashion-mnist]\nlabels = [40]", "fashion-mnist|Fashion"),
        ("labels = [40, 90000]", "90,000|90000"),
        ("labels = [40, 5]", "labels"),
    ],
    ids=["missing files", "too many labels", "too few labels"],
)
def test_what_is_wrong_with_the_second_recipe_is_said_before_the_first_runs(
    change: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first.toml").write_text(TEXT)
    (tmp_path / "second.toml").write_text(RECIPE_TEXT.replace("labels = [40]", change))

    def no_download(*_: object, **__: object) -> None:
        raise DataError("fashion-mnist cannot be downloaded")

    monkeypatch.setattr("rankingmatch.data.cache.find_files", no_download)
    options = BenchOptions(out=tmp_path / "runs", quiet=True, settings={"data_dir": str(tmp_path)})
    with pytest.raises(RankingMatchError, match=message):
        run_recipes([str(tmp_path / "first.toml"), str(tmp_path / "second.toml")], options, OutputFiles(), "x")
    assert not (tmp_path / "runs").exists()


def test_without_figures_no_directory_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    files = OutputFiles(figures=tmp_path / "figures")
    bench(tmp_path, capsys, files, folds=1, quiet=True, settings={"evaluate_every": 4})
    assert not (tmp_path / "figures").exists()
