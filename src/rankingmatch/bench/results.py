"""Results that outlive the run directories, and the tables and pages that are made from them.

A line of RECIPE.jsonl is a run of a grid: its name, the commit and the day, the settings that are not defaults, the
result, and the errors at each evaluation. NAME.json is what a benchmark found: by which command, of which code, when
and where. The tables of the docs are made from these files, without a run.
"""

import datetime
import json
import os
import platform
import shlex
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankingmatch.bench.recipe import ERRORS, MEMORY, SECONDS, Cell, Recipe, all_cells
from rankingmatch.bench.tables import Figure, Table, TableRow, markdown, markdown_table
from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import ConfigError, RunError, first_line
from rankingmatch.core.options import flag
from rankingmatch.core.untrusted import check_value, read_json, read_json_lines, typed
from rankingmatch.runs.directory import Run, source_commit
from rankingmatch.runs.result import Result, check_line

EVALUATED = ("step", "seconds", "val_error", "test_error", "confident", "purity")
MEGABYTE = 2**20
UNBALANCED = ("imbalance", "unlabeled_imbalance", "rebalance")


# --- runs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeptRun:
    """What is kept of a run of a grid."""

    run: str  # the name of its directory
    commit: str  # of the code that made it; "" if unknown
    date: str
    config: dict[str, Any]  # the settings that are not defaults, by section, without those of the machine
    result: Result
    history: list[dict[str, Any]]  # step, seconds and errors of each evaluation


def kept_run(cell: Cell, run: Run) -> KeptRun:
    """What is kept of a finished run."""
    result = run.result()
    assert result is not None
    history = [{name: line[name] for name in EVALUATED if name in line} for line in run.history()]
    commit = str(run.environment().get("commit", ""))
    day = datetime.date.fromtimestamp((run.path / "result.json").stat().st_mtime).isoformat()
    result = replace(result, dataset=cell.column.dataset)
    return KeptRun(cell.directory, commit, day, _portable(cell), result, history)


def read_kept(path: Path) -> dict[str, KeptRun]:
    """The kept runs of a recipe, by name; none without the file."""
    runs = {}
    try:
        for values in read_json_lines(path) if path.exists() else ():
            texts = {name: check_value(name, values.get(name), str) for name in ("run", "commit", "date")}
            config = check_value("config", values.get("config"), dict)
            result = Result.from_json(check_value("result", values.get("result"), dict))
            history = check_value("history", values.get("history"), list[dict[str, Any]])
            for line in history:
                check_line(line)
            runs[texts["run"]] = KeptRun(**texts, config=config, result=result, history=history)
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise RunError(f"{path} cannot be read: {first_line(error)}; restore it, or delete it") from error
    return runs


def keep_runs(path: Path, runs: Iterable[KeptRun]) -> None:
    """Add the runs that are not in a file, which is sorted by name."""
    kept = read_kept(path)
    new = {run.run: run for run in runs if run.run not in kept}
    if not new:
        return
    lines = []
    for _, run in sorted((kept | new).items()):
        result = {name: value for name, value in run.result.to_json().items() if name != "format"}
        lines.append(json.dumps({**vars(run), "result": result}) + "\n")
    write_atomically(path, "".join(lines).encode())


def kept_of(grid: Sequence[Cell], path: Path) -> dict[str, KeptRun]:
    """The kept runs of a grid, by name; raises ConfigError if one was kept with other settings."""
    kept = read_kept(path)
    cells = {cell.directory: cell for cell in grid if cell.directory in kept}
    for name, cell in cells.items():
        before, now = (_of_any_machine(config) for config in (kept[name].config, _portable(cell)))
        for section in (section for section in now if before.get(section) != now[section]):
            raise ConfigError(
                f"{path} has {name} with other settings ({section}: {before.get(section)}, now {now[section]}); "
                "delete its line to run it again"
            )
    return {name: kept[name] for name in cells}


def _portable(cell: Cell) -> dict[str, Any]:
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


@dataclass(frozen=True)
class Outcome:
    """A recipe at a scale: the runs of its grid, and what those that are finished gave, by name."""

    recipe: Recipe
    scale: str
    grid: list[Cell]
    runs: dict[str, KeptRun]
    directory: Path = Path()  # which has the run directories

    def finished(self, row: str, column: str) -> list[Cell]:
        """The finished runs of a row and a column, fold by fold."""
        cells = (cell for cell in self.grid if cell.directory in self.runs)
        return [cell for cell in cells if cell.row.name == row and cell.column.title == column]

    def of(self, row: str, column: str) -> list[KeptRun]:
        """What these runs gave."""
        return [self.runs[cell.directory] for cell in self.finished(row, column)]

    @cached_property
    def tables(self) -> list[Table]:
        """The table of test errors, and of balanced errors if classes are unbalanced; or the two tables of costs."""
        if per := self.recipe.measure:
            unit = "seconds per epoch" if per == "epoch" else "milliseconds per batch"
            if per == "epoch" and self.scale != "paper":
                unit += f" of {self.grid[0].config.training.evaluation_interval} steps"
            units = {SECONDS: unit, MEMORY: f"peak memory in MB, {per} by {per}"}
            return [self._table(name, units[name], partial(self.costs, name)) for name in units]
        results = {name: run.result for name, run in self.runs.items()}
        errors = self._table(ERRORS, "test error %", lambda cell: [results[cell.directory].test_error])
        if not is_unbalanced(self.recipe):
            return [errors]
        unit = "balanced test error %"  # of which the paper has no figures
        return [errors, self._table("", unit, lambda cell: [results[cell.directory].test_balanced_error])]

    def _table(self, quantity: str, unit: str, values_of: Callable[[Cell], Iterable[float | None]]) -> Table:
        """A table of the values of each run; rows that only the paper has come first, as cited."""
        paper, rows = self.recipe.paper.get(quantity, {}), [row.name for row in self.recipe.rows]
        head = tuple(column.title for column in self.recipe.columns)

        def figure(row: str, column: str) -> Figure:
            cells = self.finished(row, column)
            steps = (self.runs[cell.directory].result.diverged_at for cell in cells if not self.recipe.measure)
            return Figure.of((value for cell in cells for value in values_of(cell)), steps)

        cited = [TableRow(name, (None,) * len(head), figures) for name, figures in paper.items() if name not in rows]
        none = ("",) * len(head)
        own = [TableRow(row, tuple(figure(row, column) for column in head), paper.get(row, none)) for row in rows]
        scale = "" if self.scale == "paper" else f" (at scale {self.scale})"
        return Table(self.recipe.title + scale, unit, head, (*cited, *own))

    def costs(self, quantity: str, cell: Cell) -> np.ndarray:
        """The cost of each epoch or batch of a run: seconds (milliseconds for a batch), or peak memory in MB."""
        costs = Run(self.directory / cell.directory).step_costs()
        values = costs[:, 1] if quantity == SECONDS else costs[:, 2] / MEGABYTE
        if self.recipe.measure == "batch":
            return values * 1000 if quantity == SECONDS else values
        length = cell.config.training.evaluation_interval  # an epoch
        epochs = values[: len(costs) // length * length].reshape(-1, length)
        return np.asarray(epochs.sum(1) if quantity == SECONDS else epochs.max(1))


def kept_outcome(recipe: Recipe, path: Path) -> Outcome:
    """The outcome of the runs that a file keeps of a recipe; columns without runs are left out."""
    kept = read_kept(path)
    grid = [cell for cell in all_cells(recipe, recipe.folds) if cell.directory in kept]
    titles = {cell.column.title for cell in grid}
    indices = [index for index, column in enumerate(recipe.columns) if column.title in titles]
    paper = {
        quantity: {name: tuple(figures[index] for index in indices) for name, figures in table.items()}
        for quantity, table in recipe.paper.items()
    }
    recipe = replace(recipe, columns=tuple(recipe.columns[index] for index in indices), paper=paper)
    return Outcome(recipe, recipe.scale, grid, {cell.directory: kept[cell.directory] for cell in grid})


# --- pages ---------------------------------------------------------------------------------------------------


def is_unbalanced(recipe: Recipe) -> bool:
    """Whether the recipe is about unbalanced classes: a run has a long tail, or a remedy for one."""
    return any(settings.get(name) for settings in recipe.all_settings() for name in UNBALANCED)


def markdown_page(outcomes: Sequence[Outcome], command: str) -> str:
    """A page of tables, with the command, date and machine that produced it."""
    today = datetime.date.today().isoformat()
    parts = [
        "# Results\n",
        f"Written by `{command}` on {today}, on {platform.machine()} with {os.cpu_count()} CPU cores. "
        "Errors of the EMA weights at the last step, mean ± standard deviation over folds; a fold is a seed, "
        "which determines the labels, the initial weights and all random numbers. Seconds are the "
        "median wall time of a run. The lowest mean of a column is bold.\n",
    ]
    for outcome in outcomes:
        parts.append(f"## {outcome.tables[0].title}\n")
        parts.extend(markdown(table) for table in outcome.tables)
        if not outcome.recipe.measure:
            parts.append(details(outcome))
    return "\n".join(parts)


def details(outcome: Outcome) -> str:
    """Every fold of every row and column, with validation errors and times, in Markdown."""
    recalls, rows = is_unbalanced(outcome.recipe), []
    for column in outcome.recipe.columns:
        for row in outcome.recipe.rows:
            results = [run.result for run in outcome.of(row.name, column.title)]
            if not results:  # a grid of which only some runs are kept
                continue
            folds = ", ".join(str(Figure.of([r.test_error], [r.diverged_at])) for r in results)
            validation = Figure.of(r.val_error for r in results)
            seconds = statistics.median(result.seconds for result in results)
            cells = [row.name, column.title, folds, str(validation), f"{seconds:.0f}"]
            if recalls:  # of each class, averaged over folds; a dash if it was not measured
                of_classes = zip(*(r.test_recall for r in results if r.test_recall is not None), strict=True)
                means = (None if None in one else sum(one) / len(one) for one in of_classes)
                cells.append(", ".join("–" if mean is None else f"{mean:.0f}" for mean in means) or "–")
            rows.append(cells)
    head = ["", "", "test error of each fold", "validation error %", "seconds", "recall of each class %"]
    return markdown_table(head if recalls else head[:-1], rows)


# --- measurements --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """What a benchmark measured."""

    command: str  # which measures it again
    commit: str  # of the code; "" if unknown
    date: str
    machine: str  # processor, cores, threads of torch, its version, and how busy the machine was
    rows: list[dict[str, Any]]  # the measured values, not rounded


def keep_rows(path: Path, command: str, rows: list[dict[str, Any]]) -> None:
    """Write rows that a command measured just now, each on a line, so that differences can be read."""
    threads = torch.get_num_threads()
    load = f", load {os.getloadavg()[1]:.1f}" if hasattr(os, "getloadavg") else ""
    machine = (
        f"{platform.machine()} with {os.cpu_count()} CPU cores, {threads} thread{'s' if threads > 1 else ''}, "
        f"torch {torch.__version__}{load}"
    )
    today = datetime.date.today().isoformat()
    head = {"command": command, "commit": source_commit(), "date": today, "machine": machine}
    lines = ",\n".join(map(json.dumps, rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, f'{json.dumps(head)[:-1]}, "rows": [\n{lines}\n]}}\n'.encode())


def read_measurement(path: Path) -> Measurement:
    """The measurement in a file; RunError if there is something else in it."""
    try:
        return typed(Measurement, read_json(path))
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise RunError(f"{path} cannot be read: {first_line(error)}; restore it, or measure it again") from error


def command_line(arguments: Sequence[str]) -> str:
    """A command as one types it, without `--keep DIR`, which does not change the results."""
    given, words = flag("keep"), list(arguments)
    if given in words:
        position = words.index(given)
        del words[position : position + 2]
    return shlex.join(words)
