"""Results in one small file per recipe, which outlive the run directories: tables are made from them without a run.

A line of RECIPE.jsonl is a run: its name, the commit and the day, the settings that are not defaults, the result, and
the errors at each evaluation.
"""

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankingmatch.bench.grid import GridDisplay
from rankingmatch.bench.outcome import Outcome, tables_of
from rankingmatch.bench.recipe import Cell, PlannedCell, Recipe, all_cells
from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import ConfigError, RunError, first_line
from rankingmatch.core.untrusted import check_value, read_json_lines
from rankingmatch.runs.directory import Run
from rankingmatch.runs.result import Result, check_line

__all__ = ["KeepingDisplay", "KeptResults", "KeptRun", "kept_outcome"]

EVALUATED = ("step", "seconds", "val_error", "test_error", "confident", "purity")


@dataclasses.dataclass(frozen=True)
class KeptRun:
    """A run that was kept.

    Attributes
    ----------
    run
        The name of its run directory.
    commit, date
        The commit of the code that made it ("" if unknown), and the day it was made.
    config
        The settings that are not defaults, by section, without those of the machine.
    result
        Its result.
    history
        Step, seconds and errors of each evaluation.
    """

    run: str
    commit: str
    date: str
    config: dict[str, Any]
    result: Result
    history: list[dict[str, Any]]

    def to_line(self) -> str:
        """A line of JSON."""
        result = {name: value for name, value in self.result.to_json().items() if name != "format"}
        return json.dumps({**vars(self), "result": result}) + "\n"

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "KeptRun":
        """The run in a line; BadFileError or KeyError if something in it is not what it should be."""
        texts = {name: check_value(name, values[name], str) for name in ("run", "commit", "date")}
        config = check_value("config", values["config"], dict)
        result = Result.from_json(check_value("result", values["result"], dict))
        history = check_value("history", values["history"], list[dict[str, Any]])
        for line in history:
            check_line(line)
        return cls(**texts, config=config, result=result, history=history)


class KeptResults:
    """The kept runs of a recipe.

    Parameters
    ----------
    path
        A file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[str, KeptRun] = {}
        if path.exists():
            try:
                kept = [KeptRun.from_json(values) for values in read_json_lines(path)]
            except (ValueError, TypeError, KeyError, OSError) as error:
                raise RunError(f"{path} cannot be read: {first_line(error)}; restore it, or delete it") from error
            self.runs = {run.run: run for run in kept}

    def results(self, grid: Sequence[PlannedCell]) -> dict[int, Result]:
        """The results of the runs of a grid that are kept, by position.

        Raises ConfigError if a run was kept with other settings.
        """
        found = {index: self.runs[cell.directory] for index, cell in enumerate(grid) if cell.directory in self.runs}
        for index, kept in found.items():
            self._check(grid[index], kept)
        return {index: kept.result for index, kept in found.items()}

    def histories(self, grid: Sequence[Cell]) -> list[list[dict[str, Any]]]:
        """The evaluations of each run of a grid, all of which are kept."""
        return [self.runs[cell.directory].history for cell in grid]

    def _check(self, cell: PlannedCell, kept: KeptRun) -> None:
        """Raise ConfigError if a run was kept with other settings than the grid has now."""
        before = _of_any_machine(kept.config)
        for section, values in _of_any_machine(_portable(cell)).items():
            if before.get(section) != values:
                raise ConfigError(
                    f"{self.path} has {cell.directory} with other settings ({section}: {before.get(section)}, now "
                    f"{values}); delete its line to run it again"
                )

    def add_finished(self, grid: Sequence[PlannedCell], runs: Sequence[Run]) -> None:
        """Keep the finished runs of a grid that are not kept yet."""
        for cell, run in zip(grid, runs, strict=True):
            if cell.directory not in self.runs and run.result() is not None:
                self.add(cell, run)

    def add(self, cell: PlannedCell, run: Run) -> None:
        """Keep a finished run."""
        result = run.result()
        assert result is not None
        result = dataclasses.replace(result, dataset=cell.column.dataset)
        history = [{name: line[name] for name in EVALUATED if name in line} for line in run.history()]
        commit = str(run.environment().get("commit", ""))
        day = datetime.date.fromtimestamp((run.path / "result.json").stat().st_mtime).isoformat()
        self.runs[cell.directory] = KeptRun(cell.directory, commit, day, _portable(cell), result, history)
        write_atomically(self.path, "".join(kept.to_line() for _, kept in sorted(self.runs.items())).encode())


class KeepingDisplay:
    """Keeps each run that is finished, and passes everything on to a display.

    Parameters
    ----------
    display
        The display.
    kept
        Where results are kept.
    grid, runs
        The runs of the grid and their directories.
    """

    def __init__(
        self, display: GridDisplay, kept: KeptResults, grid: Sequence[PlannedCell], runs: Sequence[Run]
    ) -> None:
        self._display, self._kept, self._grid, self._runs = display, kept, grid, runs

    def update(self, index: int, step: int) -> None:
        """Pass it on."""
        self._display.update(index, step)

    def finish(self, index: int, result: Result) -> None:
        """Keep the run, and pass it on."""
        self._kept.add(self._grid[index], self._runs[index])
        self._display.finish(index, result)


def kept_outcome(recipe: Recipe, path: Path) -> tuple[Outcome, list[KeptRun]]:
    """The tables of a recipe from the runs that are kept of it; columns without runs are left out.

    Parameters
    ----------
    recipe
        The recipe.
    path
        The file with its kept runs.

    Returns
    -------
    tuple
        The outcome, and the runs it was made from.
    """
    kept = KeptResults(path).runs
    grid: list[Cell] = [cell for cell in all_cells(recipe, recipe.folds) if cell.directory in kept]
    runs = [kept[cell.directory] for cell in grid]
    recipe = _with_columns(recipe, {cell.column.title for cell in grid})
    outcome = Outcome(recipe, recipe.scale, grid, [], [run.result for run in runs], [run.history for run in runs])
    outcome.tables.extend(tables_of(outcome))
    return outcome, runs


def _with_columns(recipe: Recipe, titles: set[str]) -> Recipe:
    """A recipe with these columns only, and the paper's figures for them."""
    indices = [index for index, column in enumerate(recipe.columns) if column.title in titles]
    paper = {
        quantity: {name: tuple(figures[index] for index in indices) for name, figures in table.items()}
        for quantity, table in recipe.paper.items()
    }
    return dataclasses.replace(recipe, columns=tuple(recipe.columns[index] for index in indices), paper=paper)


def _portable(cell: PlannedCell) -> dict[str, Any]:
    """What determines the result of a run, as plain JSON: settings that are not defaults, and no path of a machine."""
    changes = {name: values for name, values in cell.config.changes().items() if name != "execution"}
    return dict(json.loads(json.dumps({"dataset": cell.column.dataset, "method": cell.row.method, **changes})))


def _of_any_machine(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without the precision, which depends on the machine if the recipe leaves it open."""
    return {
        section: {name: value for name, value in values.items() if name != "precision"}
        if isinstance(values, dict)
        else values
        for section, values in config.items()
    }
