"""Results that outlive the run directories, and the tables, pages and curves that are made from them.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankingmatch.bench.recipe import ERRORS, MEMORY, SECONDS, Cell, Recipe, all_cells
from rankingmatch.bench.tables import Figure, Table, TableRow, markdown
from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import ConfigError, RunError, first_line
from rankingmatch.core.options import flag
from rankingmatch.core.untrusted import check_value, read_json, read_json_lines, typed
from rankingmatch.data import dataset_title
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


def kept_run(cell: Cell, run: Run) -> KeptRun:
    """What is kept of a finished run."""
    result = run.result()
    assert result is not None
    history = [{name: line[name] for name in EVALUATED if name in line} for line in run.history()]
    commit = str(run.environment().get("commit", ""))
    day = datetime.date.fromtimestamp((run.path / "result.json").stat().st_mtime).isoformat()
    result = replace(result, dataset=cell.column.dataset)
    return KeptRun(cell.directory, commit, day, _portable(cell), result, history)


class KeptResults:
    """The kept runs of a recipe, by name; the file need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[str, KeptRun] = {}
        if path.exists():
            try:
                kept = [KeptRun.from_json(values) for values in read_json_lines(path)]
            except (ValueError, TypeError, KeyError, OSError) as error:
                raise RunError(f"{path} cannot be read: {first_line(error)}; restore it, or delete it") from error
            self.runs = {run.run: run for run in kept}

    def of(self, grid: Sequence[Cell]) -> dict[int, KeptRun]:
        """The kept runs of a grid, by index; raises ConfigError if one was kept with other settings."""
        found = {index: self.runs[cell.directory] for index, cell in enumerate(grid) if cell.directory in self.runs}
        for index, kept in found.items():
            before, now = _of_any_machine(kept.config), _of_any_machine(_portable(grid[index]))
            for section in (name for name in now if before.get(name) != now[name]):
                raise ConfigError(
                    f"{self.path} has {kept.run} with other settings ({section}: {before.get(section)}, now "
                    f"{now[section]}); delete its line to run it again"
                )
        return found

    def add(self, run: KeptRun) -> None:
        """Keep a run; the file is sorted by name."""
        self.runs[run.run] = run
        write_atomically(self.path, "".join(one.to_line() for _, one in sorted(self.runs.items())).encode())


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
    """A recipe that has been run at a scale: what each run of its grid is and gave, and where the directories are."""

    recipe: Recipe
    scale: str
    grid: Sequence[Cell]
    runs: Sequence[KeptRun]
    directory: Path = Path()

    def of(self, row: str, column: str) -> list[KeptRun]:
        """The runs of a row and a column, fold by fold."""
        pairs = zip(self.grid, self.runs, strict=True)
        return [run for cell, run in pairs if (cell.row.name, cell.column.title) == (row, column)]

    @cached_property
    def tables(self) -> list[Table]:
        """The table of test errors, and of balanced errors if classes are unbalanced; or the two tables of costs."""
        if self.recipe.measure:
            return _cost_tables(self)
        errors = _error_table(self, ERRORS, "test error %", lambda result: result.test_error)
        if not is_unbalanced(self.recipe):
            return [errors]
        balanced = "balanced test error %"  # of which the paper has no figures
        return [errors, _error_table(self, "", balanced, lambda result: result.test_balanced_error)]


def kept_outcome(recipe: Recipe, path: Path) -> Outcome:
    """The outcome of the runs that a file keeps of a recipe; columns without runs are left out."""
    kept = KeptResults(path).runs
    grid = [cell for cell in all_cells(recipe, recipe.folds) if cell.directory in kept]
    titles = {cell.column.title for cell in grid}
    indices = [index for index, column in enumerate(recipe.columns) if column.title in titles]
    paper = {
        quantity: {name: tuple(figures[index] for index in indices) for name, figures in table.items()}
        for quantity, table in recipe.paper.items()
    }
    recipe = replace(recipe, columns=tuple(recipe.columns[index] for index in indices), paper=paper)
    return Outcome(recipe, recipe.scale, grid, [kept[cell.directory] for cell in grid])


# --- tables --------------------------------------------------------------------------------------------------


def is_unbalanced(recipe: Recipe) -> bool:
    """Whether the recipe is about unbalanced classes: a run has a long tail, or a remedy for one."""
    return any(settings.get(name) for settings in recipe.all_settings() for name in UNBALANCED)


def _error_table(outcome: Outcome, quantity: str, unit: str, error_of: Callable[[Result], float | None]) -> Table:
    def figure(row: str, column: str) -> Figure:
        results = [run.result for run in outcome.of(row, column)]
        errors = tuple(error for result in results if (error := error_of(result)) is not None)
        return Figure(errors, tuple(result.diverged_at for result in results if result.diverged_at is not None))

    return _table(outcome, quantity, unit, figure)


def _cost_tables(outcome: Outcome) -> list[Table]:
    """Seconds per epoch or milliseconds per batch, and the peak memory in each."""
    per = outcome.recipe.measure
    unit = "seconds per epoch" if per == "epoch" else "milliseconds per batch"
    if per == "epoch" and outcome.scale != "paper":
        unit += f" of {outcome.grid[0].config.training.evaluation_interval} steps"
    tables = []
    for quantity, text in ((SECONDS, unit), (MEMORY, f"peak memory in MB, {per} by {per}")):

        def figure(row: str, column: str, quantity: str = quantity) -> Figure:
            cells = [cell for cell in outcome.grid if (cell.row.name, cell.column.title) == (row, column)]
            return Figure(tuple(float(cost) for cell in cells for cost in costs_of(outcome, cell)[quantity]))

        tables.append(_table(outcome, quantity, text, figure))
    return tables


def costs_of(outcome: Outcome, cell: Cell) -> dict[str, np.ndarray]:
    """The cost of each epoch or batch of a run: seconds (milliseconds for a batch) and peak memory in MB."""
    costs = Run(outcome.directory / cell.directory).step_costs()
    seconds, memory = costs[:, 1], costs[:, 2] / MEGABYTE
    if outcome.recipe.measure == "batch":
        return {SECONDS: 1000 * seconds, MEMORY: memory}
    length = cell.config.training.evaluation_interval  # an epoch
    whole = len(costs) // length * length
    return {
        SECONDS: seconds[:whole].reshape(-1, length).sum(1),
        MEMORY: memory[:whole].reshape(-1, length).max(1),
    }


def _table(outcome: Outcome, quantity: str, unit: str, figure: Callable[[str, str], Figure]) -> Table:
    """A table of one quantity; rows that only the paper has come first, as cited."""
    recipe = outcome.recipe
    paper = recipe.paper.get(quantity, {})
    head = tuple(column.title for column in recipe.columns)
    own = [row.name for row in recipe.rows]
    cited = [TableRow(name, (None,) * len(head), figures) for name, figures in paper.items() if name not in own]
    measured = [
        TableRow(row, tuple(figure(row, column) for column in head), paper.get(row, ("",) * len(head))) for row in own
    ]
    scale = "" if outcome.scale == "paper" else f" (at scale {outcome.scale})"
    return Table(recipe.title + scale, unit, head, (*cited, *measured))


# --- pages and curves ----------------------------------------------------------------------------------------


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
    recalls = is_unbalanced(outcome.recipe)
    more = " recall of each class % |" if recalls else ""
    lines = [
        f"| | | test error of each fold | validation error % | seconds |{more}",
        "|---|---|---|---|---|" + "---|" * recalls,
    ]
    for column in outcome.recipe.columns:
        for row in outcome.recipe.rows:
            results = [run.result for run in outcome.of(row.name, column.title)]
            if not results:  # a grid of which only some runs are kept
                continue
            folds = ", ".join(map(_fold, results))
            validation = Figure(tuple(r.val_error for r in results if r.val_error is not None))
            seconds = statistics.median(result.seconds for result in results)
            line = f"| {row.name} | {column.title} | {folds} | {validation} | {seconds:.0f} |"
            lines.append(f"{line} {_mean_recalls(results)} |" if recalls else line)
    return "\n".join([*lines, ""])


def _mean_recalls(results: list[Result]) -> str:
    """The recall of each class, averaged over folds; a dash if it was not measured."""
    folds = [result.test_recall for result in results if result.test_recall is not None]
    means = [None if None in recalls else sum(recalls) / len(folds) for recalls in zip(*folds, strict=True)]
    return ", ".join("–" if mean is None else f"{mean:.0f}" for mean in means) or "–"


def _fold(result: Result) -> str:
    """The test error of a run, or the step at which it diverged, or a dash without test images."""
    if result.test_error is not None:
        return f"{result.test_error:.2f}"
    return "–" if result.diverged_at is None else f"NaN-{result.diverged_at}"


def cost_curves(outcome: Outcome) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    """Quantity → column → row → one value for each epoch or batch of the first fold."""
    curves: dict[str, dict[str, dict[str, np.ndarray]]] = {SECONDS: {}, MEMORY: {}}
    for cell in (cell for cell in outcome.grid if cell.fold == 0):
        for quantity, values in costs_of(outcome, cell).items():
            curves[quantity].setdefault(cell.column.title, {})[cell.row.name] = values
    return curves


def errors_by_labels(outcome: Outcome) -> dict[str, dict[str, dict[int, Figure]]]:
    """Dataset → row → number of labels → test errors of the folds (validation errors if there are no test images).

    Datasets with fewer than two numbers of labels are left out.
    """
    errors: dict[str, dict[str, dict[int, Figure]]] = {}
    for column in outcome.recipe.columns:
        for row in outcome.recipe.rows if column.labels is not None else ():
            results = [run.result for run in outcome.of(row.name, column.title)]
            values = [r.val_error if r.test_error is None else r.test_error for r in results]
            figure = Figure(tuple(value for value in values if value is not None))
            if figure.values:
                by_row = errors.setdefault(dataset_title(column.dataset), {})
                by_row.setdefault(row.name, {})[column.labels or 0] = figure
    return {dataset: rows for dataset, rows in errors.items() if len(next(iter(rows.values()))) > 1}


def learning_curves(outcome: Outcome) -> dict[str, dict[str, dict[int, Figure]]]:
    """Column → row → step → errors of the folds, at the steps at which every fold was evaluated."""
    curves: dict[str, dict[str, dict[int, Figure]]] = {}
    for column in outcome.recipe.columns:
        for row in outcome.recipe.rows:
            histories = [run.history for run in outcome.of(row.name, column.title)]
            by_step = [{line["step"]: _error(line) for line in history} for history in histories]
            steps = sorted(set.intersection(*map(set, by_step))) if by_step else []
            if len(steps) > 1:
                errors = {step: Figure(tuple(fold[step] for fold in by_step)) for step in steps}
                curves.setdefault(column.title, {})[row.name] = errors
    return curves


def _error(evaluation: dict[str, Any]) -> float:
    """The test error of an evaluation; the validation error if there are no test images."""
    error = evaluation.get("test_error")
    return float(evaluation["val_error"] if error is None else error)


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
