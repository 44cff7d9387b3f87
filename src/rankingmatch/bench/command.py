"""Running recipes, and printing and writing the tables they give."""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rankingmatch.bench.cluster import Resources, connected
from rankingmatch.bench.curves import draw_curves, draw_errors, draw_learning
from rankingmatch.bench.grid import existing_results, load_datasets, run_grid
from rankingmatch.bench.kept import KeepingDisplay, KeptResults
from rankingmatch.bench.measurement import require_directory
from rankingmatch.bench.outcome import (
    Outcome,
    curves_of,
    errors_by_labels,
    learning_curves,
    markdown_page,
    tables_of,
)
from rankingmatch.bench.progress import grid_display
from rankingmatch.bench.recipe import PlannedCell, Recipe, cells, read_recipe, recipe_names
from rankingmatch.bench.tables import csv_rows, latex, print_table
from rankingmatch.bench.workers import Workers
from rankingmatch.core.atomic import write_output
from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.names import to_utf8
from rankingmatch.core.terminal import plain_console
from rankingmatch.report.figures import require_plotting
from rankingmatch.runs.directory import Run
from rankingmatch.runs.display import duration
from rankingmatch.runs.result import Result

__all__ = ["BenchOptions", "OutputFiles", "run_recipe", "run_recipes"]


@dataclass(frozen=True)
class OutputFiles:
    """Where tables and figures are written, in addition to the terminal."""

    markdown: Path | None = None
    csv: Path | None = None
    latex: Path | None = None
    figures: Path | None = None

    def check(self) -> None:
        """Raise ConfigError for a path that cannot be written, before anything is run."""
        for name, path in vars(self).items():
            if path is not None and not path.parent.is_dir():
                raise ConfigError(f"{setting(name)} {path}: there is no directory {path.parent}")
        if self.figures is not None:
            require_plotting()

    def write(self, outcomes: list[Outcome], command: str) -> None:
        """Write the tables of all recipes so far, and the figures of the last one."""
        tables = [table for outcome in outcomes for table in outcome.tables]
        if self.markdown is not None:
            write_output(self.markdown, to_utf8(markdown_page(outcomes, command)))
        if self.csv is not None:
            write_output(self.csv, to_utf8(csv_rows(tables)))
        if self.latex is not None:
            write_output(self.latex, to_utf8("\n".join(map(latex, tables))))
        if self.figures is not None:  # those of the other recipes have been drawn
            _draw(outcomes[-1], self.figures)


def _draw(outcome: Outcome, directory: Path) -> None:
    """Draw the figures of a recipe; without any, the directory is not created."""
    name, measure = outcome.recipe.name, outcome.recipe.measure
    errors, curves = ({}, {}) if measure else (errors_by_labels(outcome), learning_curves(outcome))
    if not (measure or errors or curves):
        print(f"no figure of {name}: its runs have one number of labels and one evaluation each", file=sys.stderr)
        return
    directory.mkdir(exist_ok=True)
    if measure:
        draw_curves(name, curves_of(outcome), measure, directory)
    elif errors:
        draw_errors(name, errors, directory)
    else:
        draw_learning(name, curves, directory)


@dataclass(frozen=True)
class BenchOptions:
    """How recipes are run, and what is printed and written.

    Attributes
    ----------
    folds, scale
        Override those of the recipes.
    jobs
        Runs at a time on this machine.
    resources
        What a run needs of a Ray cluster; None to run on this machine.
    out
        The directory of the runs.
    settings
        Options of `rankingmatch train` for all runs; they override those of the recipes.
    data
        A dataset or folder instead of the one of the recipes.
    keep
        A directory with a file of results for each recipe: runs in it are not run again, and finished ones are added.
    dry_run
        Only list the runs.
    """

    folds: int | None = None
    scale: str | None = None
    jobs: int = 1
    resources: Resources | None = None
    out: Path = Path("runs/bench")
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    keep: Path | None = None
    dry_run: bool = False
    as_json: bool = False
    quiet: bool = False


def run_recipe(
    recipe: Recipe | str, options: BenchOptions | None = None, *, workers: Workers | None = None, **given: Any
) -> Outcome:
    """Run what is not finished of a recipe, and make its tables.

    Each run has its own directory below `out/RECIPE`, or `out/RECIPE-SCALE`. Calling it again resumes what was
    interrupted.

    Parameters
    ----------
    recipe
        A recipe, the name of an included one, or the path of a TOML file.
    options
        How to run it; or give fields of `BenchOptions` as keyword arguments, such as ``folds=3, jobs=2``.
    workers
        Train the runs with these workers, instead of in processes on this machine.
    """
    options = options or BenchOptions(**{"quiet": True, **given})
    recipe = read_recipe(recipe, options.data) if isinstance(recipe, str) else recipe
    grid = cells(recipe, folds=options.folds, scale=options.scale, given=options.settings)
    scale = options.scale or recipe.scale
    directory, runs, kept, existing = _existing_runs(recipe, grid, options)
    if kept is not None:
        kept.add_finished(grid, runs)
    at_a_time = options.jobs if workers is None else workers.at_a_time
    with grid_display(grid, set(existing), at_a_time, quiet=options.quiet or options.as_json) as display:
        if kept is not None:
            display = KeepingDisplay(display, kept, grid, runs)
        results = run_grid(grid, directory, options.jobs, display, workers, existing)
    histories = [run.history() for run in runs] if kept is None else kept.histories(grid)
    recipe = replace(recipe, settings={**recipe.settings, **options.settings})
    outcome = Outcome(recipe, scale, grid, runs, results, histories)
    outcome.tables.extend(tables_of(outcome))
    return outcome


def _existing_runs(
    recipe: Recipe, grid: list[PlannedCell], options: BenchOptions
) -> tuple[Path, list[Run], KeptResults | None, dict[int, Result]]:
    """The directory of a recipe's runs, the runs, where results are kept, and the results that there are.

    Raises ConfigError if a run has other settings.
    """
    scale = options.scale or recipe.scale
    name = recipe.name if scale == recipe.scale else f"{recipe.name}-{scale}"
    directory = options.out / name
    kept = None if options.keep is None else KeptResults(options.keep / f"{name}.jsonl")
    runs = [Run(directory / cell.directory) for cell in grid]
    existing = existing_results(grid, directory) | ({} if kept is None else kept.results(grid))
    return directory, runs, kept, existing


def run_recipes(names: Sequence[str], options: BenchOptions, files: OutputFiles, command: str) -> None:
    """Run recipes, or list their runs; print their tables and write them to files.

    Parameters
    ----------
    names
        Names of included recipes, or paths of TOML files.
    options
        How to run them.
    files
        Where to write the tables.
    command
        The command line, which is recorded in the Markdown file.
    """
    if not names:
        raise ConfigError(f"a recipe is missing; give one of {', '.join(recipe_names())}, or a file ending in .toml")
    recipes = [read_recipe(name, options.data) for name in names]
    grids = [cells(recipe, folds=options.folds, scale=options.scale, given=options.settings) for recipe in recipes]
    files.check()
    if options.keep is not None:
        require_directory(options.keep)
    if options.dry_run:
        for recipe, grid in zip(recipes, grids, strict=True):
            _list_runs(recipe, grid, options)
        return
    for recipe, grid in zip(recipes, grids, strict=True):  # what is wrong with the last one is said before the first
        *_, existing = _existing_runs(recipe, grid, options)
        load_datasets(cell for index, cell in enumerate(grid) if index not in existing)
    outcomes: list[Outcome] = []
    with nullcontext() if options.resources is None else connected(options.resources) as workers:
        for recipe in recipes:
            outcomes.append(run_recipe(recipe, options, workers=workers))
            _print_outcome(outcomes[-1], options)
            files.write(outcomes, command)


def _print_outcome(outcome: Outcome, options: BenchOptions) -> None:
    if options.as_json:
        _print_json(outcome)
    elif not options.quiet:
        for table in outcome.tables:
            print_table(table, plain_console(wide=True))
        print(f"runs: {outcome.runs[0].path.parent}", file=sys.stderr)


def _print_json(outcome: Outcome) -> None:
    for cell, run, result in zip(outcome.grid, outcome.runs, outcome.results, strict=True):
        values = {
            "recipe": outcome.recipe.name,
            "scale": outcome.scale,
            "row": cell.row.name,
            "dataset": cell.column.dataset,
            "fold": cell.fold,
            "run": str(run.path),
            "method": result.method,
            "labels": result.labels,
            "test_error": result.test_error,
            "val_error": result.val_error,
            "test_balanced_error": result.test_balanced_error,
            "val_balanced_error": result.val_balanced_error,
            "diverged_at": result.diverged_at,
            "seconds": result.seconds,
        }
        print(json.dumps(values))


def _list_runs(recipe: Recipe, grid: list[PlannedCell], options: BenchOptions) -> None:
    """Print the runs of a recipe, a line for each row and column, with the seconds of those that are finished."""
    *_, existing = _existing_runs(recipe, grid, options)
    folds: dict[tuple[str, str], list[int]] = {}
    for index, cell in enumerate(grid):
        folds.setdefault((cell.row.name, cell.column.title), []).append(index)
    scale, known = options.scale or recipe.scale, 0.0
    if not options.as_json:
        print(f"{recipe.title} (scale {scale})")
    for (row, column), indices in folds.items():
        seconds = [existing[index].seconds for index in indices if index in existing]
        steps = 0 if grid[indices[0]].baseline else grid[indices[0]].config.training.last_step
        known += sum(seconds)
        if options.as_json:
            values = {"recipe": recipe.name, "scale": scale, "row": row, "column": column, "runs": len(indices)}
            median = statistics.median(seconds) if seconds else None
            print(json.dumps({**values, "steps": steps, "finished": len(seconds), "seconds": median}))
        else:
            finished = f"; {len(seconds)} finished, {duration(statistics.median(seconds))} each" if seconds else ""
            print(f"  {row}, {column}: {len(indices)} × {steps:,} steps{finished}")
    if not options.as_json:
        done = f", {len(existing)} of them finished in {duration(known)}" if existing else ""
        print(f"  {len(grid)} runs{done}")
