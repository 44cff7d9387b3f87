"""Results and measurements that are kept: never made again, and enough to make the tables."""

import datetime
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny import RECIPE_TEXT

from rankingmatch.bench import parse_recipe, run_recipe
from rankingmatch.bench.curves import learning_curves
from rankingmatch.bench.results import command_line, details, keep_rows, kept_outcome, read_kept, read_measurement
from rankingmatch.bench.tables import markdown
from rankingmatch.core.errors import ConfigError, RunError
from rankingmatch.runs.directory import Run, source_commit

RECIPE = parse_recipe("mine", RECIPE_TEXT)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a recipe that was run, with its runs and with what is kept of them."""
    directory = tmp_path_factory.mktemp("kept")
    run_recipe(RECIPE, out=directory / "runs")
    run_recipe(RECIPE, out=directory / "runs", keep=directory / "results")  # finished runs are added
    return directory


def test_every_run_is_one_line_without_paths_of_the_machine(kept: Path) -> None:
    text = (kept / "results/mine.jsonl").read_text()
    runs = read_kept(kept / "results/mine.jsonl")
    assert len(runs) == len(text.splitlines()) == 4
    assert str(kept) not in text
    assert str(Path.home()) not in text
    for name, run in runs.items():
        directory = Run(kept / "runs/mine" / name)
        assert run.result == directory.result()
        assert [line["test_error"] for line in run.history] == [line["test_error"] for line in directory.history()]
        assert run.commit == directory.environment()["commit"]


def test_the_tables_are_those_of_the_runs(kept: Path) -> None:
    trained = run_recipe(RECIPE, out=kept / "runs")
    outcome = kept_outcome(RECIPE, kept / "results/mine.jsonl")
    assert list(map(markdown, outcome.tables)) == list(map(markdown, trained.tables))
    assert learning_curves(outcome) == learning_curves(trained)
    assert len(learning_curves(outcome)) == 1
    assert len(outcome.runs) == 4


def test_kept_runs_are_not_run_again_and_missing_ones_are(kept: Path, tmp_path: Path) -> None:
    lines = (kept / "results/mine.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "mine.jsonl").write_text("".join(lines[:-1]))
    run_recipe(RECIPE, out=tmp_path / "runs", keep=tmp_path)
    assert [path.name for path in (tmp_path / "runs/mine").iterdir()] == [json.loads(lines[-1])["run"]]
    again, before = read_kept(tmp_path / "mine.jsonl"), read_kept(kept / "results/mine.jsonl")
    assert list(again) == list(before)
    assert [run.result.test for run in again.values()] == [run.result.test for run in before.values()]


def test_a_run_that_was_kept_with_other_settings_than_the_precision_is_an_error(kept: Path, tmp_path: Path) -> None:
    shutil.copy(kept / "results/mine.jsonl", tmp_path)
    with pytest.raises(ConfigError, match=r"mine.jsonl has .* with other settings \(training: "):
        run_recipe(RECIPE, out=tmp_path / "runs", keep=tmp_path, settings={"learning_rate": 0.01})
    run_recipe(RECIPE, out=tmp_path / "runs", keep=tmp_path, settings={"precision": "bfloat16"})
    assert not (tmp_path / "runs").exists()


def test_folds_columns_and_rows_without_kept_runs_are_left_out(kept: Path, tmp_path: Path) -> None:
    outcome = kept_outcome(replace(RECIPE, folds=5), kept / "results/mine.jsonl")
    assert len(outcome.grid) == len(outcome.runs) == 4
    lines = (kept / "results/mine.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(line for line in lines if json.loads(line)["result"]["method"] == "supervised"))
    (column,) = RECIPE.columns
    paper: dict[str, dict[str, tuple[str, ...]]] = {"test error %": {"theirs": ("9.9", "1.1")}}
    outcome = kept_outcome(replace(RECIPE, columns=(replace(column, labels=100), column), paper=paper), path)
    assert outcome.recipe.columns == (column,)
    assert outcome.recipe.paper == {"test error %": {"theirs": ("1.1",)}}
    rows = [line for line in details(outcome).splitlines()[2:] if line]
    assert [line.split(" | ")[0] for line in rows] == ["| supervised"]


# --- measurements --------------------------------------------------------------------------------------------


def test_rows_are_read_as_they_were_kept_with_what_made_them(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"loss": "BatchMean", "seconds": [0.1, 1 / 3]}, {"loss": "BatchAll", "seconds": []}]
    path = tmp_path / "new/mine.json"
    keep_rows(path, "python mine.py", rows)
    kept = read_measurement(path)
    assert (kept.rows, kept.command, kept.commit) == (rows, "python mine.py", source_commit())
    assert kept.date == datetime.date.today().isoformat()
    assert "CPU cores" in kept.machine
    assert len(path.read_text().splitlines()) == 4  # a line for each row: differences can be read


def test_a_command_does_not_say_where_its_results_are_kept() -> None:
    assert command_line(["python", "a b.py", "--keep", "docs/results", "--rounds", "3"]) == "python 'a b.py' --rounds 3"


@pytest.mark.parametrize("content", ["{", '{"rows": []}', '{"command": 1}', "[]"])
@pytest.mark.parametrize("read", [read_measurement, read_kept])
def test_a_file_with_something_else_is_an_error(read: Callable[[Path], object], content: str, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(f"{content}\n")
    with pytest.raises(RunError, match=r"mine.json cannot be read"):
        read(tmp_path / "mine.json")
