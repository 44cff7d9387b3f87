"""Running recipes, and printing and writing the tables they give."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from rankingmatch.bench.cluster import Resources, connected
from rankingmatch.bench.curves import draw_curves
from rankingmatch.bench.estimate import Estimate, estimate_grid
from rankingmatch.bench.grid import run_grid
from rankingmatch.bench.outcome import Outcome, curves_of, markdown_page, tables_of
from rankingmatch.bench.progress import grid_display
from rankingmatch.bench.recipe import Recipe, cells, read_recipe, recipe_names
from rankingmatch.bench.tables import csv_rows, latex, print_table
from rankingmatch.bench.workers import Workers
from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.report.figures import require_plotting
from rankingmatch.runs.directory import Run
from rankingmatch.runs.display import duration

__all__ = ["BenchOptions", "OutputFiles", "run_recipe", "run_recipes"]

FILE_WIDTH = 160  # characters, if the output is not a terminal


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
        """Write all tables and figures of all recipes."""
        tables = [table for outcome in outcomes for table in outcome.tables]
        if self.markdown is not None:
            write_atomically(self.markdown, markdown_page(outcomes, command).encode())
        if self.csv is not None:
            write_atomically(self.csv, csv_rows(tables).encode())
        if self.latex is not None:
            write_atomically(self.latex, "\n".join(map(latex, tables)).encode())
        if self.figures is not None:
            self.figures.mkdir(exist_ok=True)
            for outcome in outcomes:
                if outcome.recipe.measure:
                    draw_curves(outcome.recipe.name, curves_of(outcome), outcome.recipe.measure, self.figures)


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
    """

    folds: int | None = None
    scale: str | None = None
    jobs: int = 1
    resources: Resources | None = None
    out: Path = Path("runs/bench")
    settings: Mapping[str, Any] = field(default_factory=dict)
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
    recipe = read_recipe(recipe) if isinstance(recipe, str) else recipe
    grid = cells(recipe, folds=options.folds, scale=options.scale, given=options.settings)
    scale = options.scale or recipe.scale
    directory = options.out / (recipe.name if scale == "paper" else f"{recipe.name}-{scale}")
    runs = [Run(directory / cell.directory) for cell in grid]
    at_a_time = options.jobs if workers is None else workers.at_a_time
    with grid_display(grid, runs, at_a_time, quiet=options.quiet or options.as_json) as display:
        results = run_grid(grid, directory, options.jobs, display, workers)
    outcome = Outcome(recipe, scale, grid, runs, results)
    outcome.tables.extend(tables_of(outcome))
    return outcome


def run_recipes(names: Sequence[str], options: BenchOptions, files: OutputFiles, command: str) -> None:
    """Run recipes, or estimate their cost; print their tables and write them to files.

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
    recipes = [read_recipe(name) for name in names]
    grids = [cells(recipe, folds=options.folds, scale=options.scale, given=options.settings) for recipe in recipes]
    files.check()
    if options.dry_run:
        for recipe, grid in zip(recipes, grids, strict=True):
            _print_estimate(recipe, estimate_grid(grid), options)
        return
    outcomes = []
    with nullcontext() if options.resources is None else connected(options.resources) as workers:
        for recipe in recipes:
            outcomes.append(run_recipe(recipe, options, workers=workers))
            _print_outcome(outcomes[-1], options)
    files.write(outcomes, command)


def _print_outcome(outcome: Outcome, options: BenchOptions) -> None:
    if options.as_json:
        _print_json(outcome)
    elif not options.quiet:
        console = Console()
        for table in outcome.tables:
            print_table(table, console if console.is_terminal else Console(width=FILE_WIDTH))
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
            "diverged_at": result.diverged_at,
            "seconds": result.seconds,
        }
        print(json.dumps(values))


def _print_estimate(recipe: Recipe, estimates: list[Estimate], options: BenchOptions) -> None:
    scale = options.scale or recipe.scale
    if options.as_json:
        for estimate in estimates:
            print(json.dumps({"recipe": recipe.name, "scale": scale, **estimate.to_json()}))
        return
    print(f"{recipe.title} (scale {scale})")
    for estimate in estimates:
        print(f"  {estimate}")
    runs, seconds = (sum(getattr(estimate, name) for estimate in estimates) for name in ("runs", "seconds"))
    parallel = f", or {duration(seconds / options.jobs)} with {options.jobs} at a time" if options.jobs > 1 else ""
    print(f"  {runs} runs: about {duration(seconds)} of computing{parallel}, from steps measured on this machine")
