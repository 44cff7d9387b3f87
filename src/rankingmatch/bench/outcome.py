"""The outcome of a recipe: its runs, their results, and the tables and curves made from them."""

import datetime
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankingmatch.bench.recipe import ERRORS, MEMORY, SECONDS, Cell, Recipe
from rankingmatch.bench.tables import Figure, Table, TableRow, markdown
from rankingmatch.data import dataset_title
from rankingmatch.runs.directory import Run
from rankingmatch.runs.result import Result

__all__ = ["Outcome", "costs_of", "curves_of", "errors_by_labels", "learning_curves", "markdown_page", "tables_of"]

MEGABYTE = 2**20
UNBALANCED = ("imbalance", "unlabeled_imbalance", "rebalance")
BALANCED = "balanced errors"  # a quantity without figures of the paper
BALANCED_ERROR = "balanced test error %"


@dataclass(frozen=True)
class Outcome:
    """A recipe that has been run.

    Attributes
    ----------
    recipe, scale
        The recipe, and the scale it was run at.
    grid, runs, results
        Its runs in order: what each one is, its directory, and its result.
    histories
        The evaluations of each run, oldest first.
    tables
        The tables they give.
    """

    recipe: Recipe
    scale: str
    grid: Sequence[Cell]
    runs: list[Run]
    results: list[Result]
    histories: list[list[dict[str, Any]]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def indices(self, row: str, column: str) -> list[int]:
        """The positions in the grid of the runs of a row and a column."""
        cells = enumerate(self.grid)
        return [index for index, cell in cells if (cell.row.name, cell.column.title) == (row, column)]


def tables_of(outcome: Outcome) -> list[Table]:
    """The table of test errors, with one of balanced errors if classes are unbalanced; or the two tables of costs."""
    if outcome.recipe.measure:
        return _cost_tables(outcome)
    errors = _error_table(outcome, ERRORS, "test error %", lambda result: result.test_error)
    if not is_unbalanced(outcome):
        return [errors]
    return [errors, _error_table(outcome, BALANCED, BALANCED_ERROR, lambda result: result.test_balanced_error)]


def is_unbalanced(outcome: Outcome) -> bool:
    """Whether the recipe is about unbalanced classes: a run has a long tail, or a remedy for one."""
    recipe = outcome.recipe
    own = [row.settings for row in recipe.rows] + [column.settings for column in recipe.columns]
    return any(settings.get(name) for settings in (recipe.settings, *own) for name in UNBALANCED)


def _error_table(outcome: Outcome, quantity: str, unit: str, error_of: Callable[[Result], float | None]) -> Table:
    def figure(indices: list[int]) -> Figure:
        results = [outcome.results[index] for index in indices]
        errors = tuple(error for result in results if (error := error_of(result)) is not None)
        return Figure(errors, tuple(result.diverged_at for result in results if result.diverged_at is not None))

    return _table(outcome, quantity, unit, figure)


def _cost_tables(outcome: Outcome) -> list[Table]:
    """Seconds per epoch or milliseconds per batch, and the peak memory in each."""

    def figure(quantity: str) -> Callable[[list[int]], Figure]:
        return lambda indices: Figure(
            tuple(float(cost) for index in indices for cost in costs_of(outcome, index)[quantity])
        )

    per = outcome.recipe.measure
    unit = "seconds per epoch" if per == "epoch" else "milliseconds per batch"
    if per == "epoch" and outcome.scale != "paper":
        unit += f" of {_interval(outcome, 0)} steps"
    return [
        _table(outcome, SECONDS, unit, figure(SECONDS)),
        _table(outcome, MEMORY, f"peak memory in MB, {per} by {per}", figure(MEMORY)),
    ]


def costs_of(outcome: Outcome, index: int) -> dict[str, np.ndarray]:
    """The cost of each epoch or batch of a run: seconds (milliseconds for a batch) and peak memory in MB."""
    costs = outcome.runs[index].step_costs()
    seconds, memory = costs[:, 1], costs[:, 2] / MEGABYTE
    if outcome.recipe.measure == "batch":
        return {SECONDS: 1000 * seconds, MEMORY: memory}
    length = _interval(outcome, index)
    whole = len(costs) // length
    return {
        SECONDS: seconds[: whole * length].reshape(whole, length).sum(1),
        MEMORY: memory[: whole * length].reshape(whole, length).max(1),
    }


def _interval(outcome: Outcome, index: int) -> int:
    """The steps between evaluations of a run: an epoch."""
    return outcome.runs[index].config().training.evaluation_interval


def _table(outcome: Outcome, quantity: str, unit: str, figure: Callable[[list[int]], Figure]) -> Table:
    """A table of one quantity; rows that only the paper has come first, as cited."""
    recipe = outcome.recipe
    paper = recipe.paper.get(quantity, {})
    head = tuple(column.title for column in recipe.columns)
    own = {row.name for row in recipe.rows}
    cited = [TableRow(name, (None,) * len(head), figures) for name, figures in paper.items() if name not in own]
    measured = [
        TableRow(
            row.name,
            tuple(figure(outcome.indices(row.name, column)) for column in head),
            paper.get(row.name, ("",) * len(head)),
        )
        for row in recipe.rows
    ]
    scale = "" if outcome.scale == "paper" else f" (at scale {outcome.scale})"
    return Table(recipe.title + scale, unit, head, (*cited, *measured))


def details(outcome: Outcome) -> str:
    """Every fold of every row and column, with validation errors and times, in Markdown."""
    recalls = is_unbalanced(outcome)
    head = "| | | test error of each fold | validation error % | seconds |"
    lines = [
        f"{head} recall of each class % |" if recalls else head,
        "|---|---|---|---|---|" + "---|" * recalls,
    ]
    for column in outcome.recipe.columns:
        for row in outcome.recipe.rows:
            results = [outcome.results[index] for index in outcome.indices(row.name, column.title)]
            if not results:  # a grid of which only some runs are kept
                continue
            folds = [_fold(result) for result in results]
            validation = Figure(tuple(r.val_error for r in results if r.val_error is not None))
            seconds = statistics.median(result.seconds for result in results)
            line = f"| {row.name} | {column.title} | {', '.join(folds)} | {validation} | {seconds:.0f} |"
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


def curves_of(outcome: Outcome) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    """Quantity → column → row → one value for each epoch or batch of the first fold."""
    curves: dict[str, dict[str, dict[str, np.ndarray]]] = {SECONDS: {}, MEMORY: {}}
    for index, cell in enumerate(outcome.grid):
        if cell.fold == 0:
            for quantity, values in costs_of(outcome, index).items():
                curves[quantity].setdefault(cell.column.title, {})[cell.row.name] = values
    return curves


def errors_by_labels(outcome: Outcome) -> dict[str, dict[str, dict[int, Figure]]]:
    """Dataset → row → number of labels → test errors of the folds (validation errors if there are no test images).

    Datasets with fewer than two numbers of labels are left out.
    """
    errors: dict[str, dict[str, dict[int, Figure]]] = {}
    for column in outcome.recipe.columns:
        for row in outcome.recipe.rows if column.labels is not None else ():
            results = [outcome.results[index] for index in outcome.indices(row.name, column.title)]
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
            histories = [outcome.histories[index] for index in outcome.indices(row.name, column.title)]
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


def markdown_page(outcomes: list[Outcome], command: str) -> str:
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
