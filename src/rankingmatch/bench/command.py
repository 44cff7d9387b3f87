"""Grids of runs carried out, and the tables they give."""

import datetime
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rankingmatch.bench.cluster import Cluster, Resources, connected
from rankingmatch.bench.estimate import Estimate, estimate_grid
from rankingmatch.bench.grid import run_grid
from rankingmatch.bench.progress import watching
from rankingmatch.bench.recipe import ERRORS, MEMORY, SECONDS, Cell, Recipe, cells, read_recipe, recipe_names
from rankingmatch.bench.tables import Figure, Table, TableRow, csv_rows, latex, markdown, print_table
from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import ConfigError
from rankingmatch.runs.directory import Result, Run
from rankingmatch.runs.display import duration

MEGABYTE = 2**20
WIDTH_OF_FILES = 160  # characters, where the output goes into a file or a pipe


@dataclass(frozen=True)
class Outcome:
    """A recipe that was run: its runs in order, their results, and the tables they give."""

    recipe: Recipe
    scale: str
    grid: list[Cell]
    runs: list[Run]
    results: list[Result]
    tables: list[Table]

    def of(self, line: str, column: str) -> list[int]:
        """The places in the grid of a row and a column."""
        places = enumerate(self.grid)
        return [number for number, cell in places if (cell.line.name, cell.column.title) == (line, column)]


def run_recipe(
    recipe: Recipe | str,
    *,
    scale: str | None = None,
    folds: int | None = None,
    jobs: int = 1,
    out: Path = Path("runs/bench"),
    settings: dict[str, Any] | None = None,
    quiet: bool = True,
    cluster: Cluster | None = None,
) -> Outcome:
    """Run what is not finished of a recipe, `jobs` runs at a time or on a cluster, and make its tables.

    `settings` are options that come before what the recipe says. Each run has a directory of its own below
    `out/RECIPE`, or `out/RECIPE-SCALE`; the same call takes up what was interrupted.
    """
    recipe = read_recipe(recipe) if isinstance(recipe, str) else recipe
    grid = cells(recipe, folds=folds, scale=scale, given=settings or {})
    chosen = scale or recipe.scale
    place = out / (recipe.name if chosen == "paper" else f"{recipe.name}-{chosen}")
    runs = [Run(place / cell.directory) for cell in grid]
    with watching(grid, runs, jobs if cluster is None else cluster.at_a_time, quiet=quiet) as watcher:
        results = run_grid(grid, place, jobs, watcher, cluster)
    outcome = Outcome(recipe, chosen, grid, runs, results, [])
    outcome.tables.extend(_cost_tables(outcome) if recipe.measure else [_error_table(outcome)])
    return outcome


# --- from results to tables ---------------------------------------------------------------------------------


def _error_table(outcome: Outcome) -> Table:
    def figure(numbers: list[int]) -> Figure:
        results = [outcome.results[number] for number in numbers]
        errors = tuple(result.test_error for result in results if result.test_error is not None)
        return Figure(errors, tuple(result.diverged_at for result in results if result.diverged_at is not None))

    return _table(outcome, ERRORS, "test error %", figure)


def _cost_tables(outcome: Outcome) -> list[Table]:
    """Seconds per epoch or milliseconds per batch, and the peak memory in each."""

    def figure(quantity: str) -> Callable[[list[int]], Figure]:
        return lambda numbers: Figure(
            tuple(float(cost) for number in numbers for cost in costs_of(outcome, number)[quantity])
        )

    per = outcome.recipe.measure
    unit = "seconds per epoch" if per == "epoch" else "milliseconds per batch"
    if per == "epoch" and outcome.scale != "paper":
        unit += f" of {outcome.grid[0].config.training.evaluation_interval} steps"
    return [
        _table(outcome, SECONDS, unit, figure(SECONDS)),
        _table(outcome, MEMORY, f"peak memory in MB, {per} by {per}", figure(MEMORY)),
    ]


def costs_of(outcome: Outcome, number: int) -> dict[str, np.ndarray]:
    """What each epoch or batch of a run cost: seconds (milliseconds for a batch) and peak memory in MB."""
    costs = outcome.runs[number].step_costs()
    seconds, memory = costs[:, 1], costs[:, 2] / MEGABYTE
    if outcome.recipe.measure == "batch":
        return {SECONDS: 1000 * seconds, MEMORY: memory}
    length = outcome.grid[number].config.training.evaluation_interval
    whole = len(costs) // length
    return {
        SECONDS: seconds[: whole * length].reshape(whole, length).sum(1),
        MEMORY: memory[: whole * length].reshape(whole, length).max(1),
    }


def _table(outcome: Outcome, quantity: str, unit: str, figure: Callable[[list[int]], Figure]) -> Table:
    """A table of one quantity; what the paper has and was not run comes first, as cited."""
    recipe = outcome.recipe
    paper = recipe.paper.get(quantity, {})
    head = tuple(column.title for column in recipe.columns)
    own = {line.name for line in recipe.lines}
    cited = [TableRow(name, (None,) * len(head), figures) for name, figures in paper.items() if name not in own]
    measured = [
        TableRow(
            line.name,
            tuple(figure(outcome.of(line.name, column)) for column in head),
            paper.get(line.name, ("",) * len(head)),
        )
        for line in recipe.lines
    ]
    scale = "" if outcome.scale == "paper" else f" (at scale {outcome.scale})"
    return Table(recipe.title + scale, unit, head, (*cited, *measured))


def details(outcome: Outcome) -> str:
    """Each row and column with its folds one by one, the validation errors and the time, in Markdown."""
    lines = ["| | | test error of each fold | validation error % | seconds per run |", "|---|---|---|---|---|"]
    for column in outcome.recipe.columns:
        for line in outcome.recipe.lines:
            results = [outcome.results[number] for number in outcome.of(line.name, column.title)]
            folds = [_fold(result) for result in results]
            validation = Figure(tuple(r.val_error for r in results if r.val_error is not None))
            seconds = sum(result.seconds for result in results) / len(results)
            lines.append(f"| {line.name} | {column.title} | {', '.join(folds)} | {validation} | {seconds:.0f} |")
    return "\n".join([*lines, ""])


def _fold(result: Result) -> str:
    """The test error of a run, or where it diverged, or nothing where there are no test images."""
    if result.test_error is not None:
        return f"{result.test_error:.2f}"
    return "–" if result.diverged_at is None else f"NaN-{result.diverged_at}"


# --- the command --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Files:
    """Where tables and figures are written, besides the terminal."""

    markdown: Path | None = None
    csv: Path | None = None
    latex: Path | None = None
    figures: Path | None = None

    def check(self) -> None:
        """Refuse a place that cannot be written before anything is run."""
        for name in ("markdown", "csv", "latex", "figures"):
            path = getattr(self, name)
            if path is not None and not path.parent.is_dir():
                raise ConfigError(f"--{name} {path}: there is no directory {path.parent}")
        if self.figures is not None:
            from rankingmatch.report.figures import require_plotting

            require_plotting()

    def write(self, outcomes: list[Outcome], command: str) -> None:
        """All tables of all recipes, in each form that is asked for."""
        tables = [table for outcome in outcomes for table in outcome.tables]
        if self.markdown is not None:
            write_atomically(self.markdown, markdown_page(outcomes, command).encode())
        if self.csv is not None:
            write_atomically(self.csv, csv_rows(tables).encode())
        if self.latex is not None:
            write_atomically(self.latex, "\n".join(map(latex, tables)).encode())
        if self.figures is not None:
            from rankingmatch.bench.curves import draw_curves

            self.figures.mkdir(exist_ok=True)
            for outcome in outcomes:
                if outcome.recipe.measure:
                    draw_curves(outcome.recipe.name, _curves(outcome), outcome.recipe.measure, self.figures)


def _curves(outcome: Outcome) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    """Quantity → column → row → a value for each epoch or batch of the first fold."""
    curves: dict[str, dict[str, dict[str, np.ndarray]]] = {SECONDS: {}, MEMORY: {}}
    for number, cell in enumerate(outcome.grid):
        if cell.fold == 0:
            for quantity, values in costs_of(outcome, number).items():
                curves[quantity].setdefault(cell.column.title, {})[cell.line.name] = values
    return curves


def run_recipes(
    names: Sequence[str],
    *,
    folds: int | None,
    scale: str | None,
    jobs: int,
    out: Path,
    settings: dict[str, Any],
    files: Files,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    command: str,
    needs: Resources | None = None,
) -> None:
    """Run recipes, or say what they would cost; print their tables and write them where asked."""
    if not names:
        raise ConfigError(f"which recipe? one of: {', '.join(recipe_names())}; or a file ending in .toml")
    recipes = [read_recipe(name) for name in names]
    grids = [cells(recipe, folds=folds, scale=scale, given=settings) for recipe in recipes]
    files.check()
    if dry_run:
        for recipe, grid in zip(recipes, grids, strict=True):
            _print_estimate(recipe, scale or recipe.scale, estimate_grid(grid), jobs, as_json)
        return
    outcomes = []
    silent = quiet or as_json
    with nullcontext() if needs is None else connected(needs) as cluster:
        for recipe in recipes:
            outcome = run_recipe(
                recipe, scale=scale, folds=folds, jobs=jobs, out=out, settings=settings, quiet=silent, cluster=cluster
            )
            outcomes.append(outcome)
            if as_json:
                _print_json(outcome)
            elif not quiet:
                console = Console()
                for table in outcome.tables:
                    print_table(table, console if console.is_terminal else Console(width=WIDTH_OF_FILES))
                print(f"runs: {outcome.runs[0].path.parent}", file=sys.stderr)
    files.write(outcomes, command)


def markdown_page(outcomes: list[Outcome], command: str) -> str:
    """A page of tables that says by which command it was made, when and where."""
    today = datetime.date.today().isoformat()
    parts = [
        "# Results\n",
        f"Written by `{command}` on {today}, on {platform.machine()} with {os.cpu_count()} CPU cores. "
        "Errors of the EMA weights at the last step, mean ± standard deviation over folds; a fold is a seed, "
        "which decides the labels, the initial weights and every draw. Seconds are wall time per run, beside other "
        "work. The lowest mean of a column is bold.\n",
    ]
    for outcome in outcomes:
        parts.append(f"## {outcome.tables[0].title}\n")
        parts.extend(markdown(table) for table in outcome.tables)
        if not outcome.recipe.measure:
            parts.append(details(outcome))
    return "\n".join(parts)


def _print_json(outcome: Outcome) -> None:
    for cell, run, result in zip(outcome.grid, outcome.runs, outcome.results, strict=True):
        values = {
            "recipe": outcome.recipe.name,
            "scale": outcome.scale,
            "row": cell.line.name,
            "dataset": cell.column.dataset,
            "fold": cell.fold,
            "run": str(run.path),
            "method": result.method,
            "labels": result.labels,
            "test_error": result.test_error,
            "val_error": result.val_error,
            "diverged_at": result.diverged_at,
            "seconds": result.seconds,
        }
        print(json.dumps(values))


def _print_estimate(recipe: Recipe, scale: str, estimates: list[Estimate], jobs: int, as_json: bool) -> None:
    seconds = sum(estimate.seconds for estimate in estimates)
    if as_json:
        for estimate in estimates:
            print(json.dumps({"recipe": recipe.name, "scale": scale, **estimate.to_json()}))
        return
    print(f"{recipe.title} (scale {scale})")
    for estimate in estimates:
        print(f"  {estimate}")
    runs = sum(estimate.runs for estimate in estimates)
    at_a_time = f", {jobs} at a time about {duration(seconds / jobs)}" if jobs > 1 else ""
    print(f"  {runs} runs: about {duration(seconds)} of computing{at_a_time}, from steps measured here")
