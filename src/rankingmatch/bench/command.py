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
from rankingmatch.bench.curves import draw_costs, draw_errors, draw_learning
from rankingmatch.bench.grid import Workers, load_datasets, run_grid
from rankingmatch.bench.progress import grid_display
from rankingmatch.bench.recipe import Cell, Recipe, cells, read_recipe, recipe_names
from rankingmatch.bench.results import (
    KeptResults,
    KeptRun,
    Outcome,
    cost_curves,
    errors_by_labels,
    kept_run,
    learning_curves,
    markdown_page,
)
from rankingmatch.bench.tables import csv_rows, latex, print_table
from rankingmatch.core.atomic import write_output
from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.names import plain_console, to_utf8
from rankingmatch.report.figures import require_plotting
from rankingmatch.runs.directory import Run
from rankingmatch.runs.display import duration

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
    name, per = outcome.recipe.name, outcome.recipe.measure
    if per:
        directory.mkdir(exist_ok=True)
        draw_costs(name, cost_curves(outcome), per, directory)
    elif errors := errors_by_labels(outcome):
        directory.mkdir(exist_ok=True)
        draw_errors(name, errors, directory)
    elif curves := learning_curves(outcome):
        directory.mkdir(exist_ok=True)
        draw_learning(name, curves, directory)
    else:
        print(f"no figure of {name}: its runs have one number of labels and one evaluation each", file=sys.stderr)


@dataclass(frozen=True)
class BenchOptions:
    """How recipes are run, and what is printed and written."""

    folds: int | None = None  # overrides those of the recipes, as does the scale
    scale: str | None = None
    jobs: int = 1  # runs at a time on this machine
    resources: Resources | None = None  # what a run needs of a Ray cluster; None to run on this machine
    out: Path = Path("runs/bench")
    settings: Mapping[str, Any] = field(default_factory=dict)  # options of `train`, which override those of the recipes
    data: str | None = None  # a dataset or folder instead of the one of the recipes
    keep: Path | None = None  # a directory with a file of results for each recipe: what is in it is not run again
    dry_run: bool = False  # only list the runs
    as_json: bool = False
    quiet: bool = False


def run_recipe(
    recipe: Recipe | str, options: BenchOptions | None = None, *, workers: Workers | None = None, **given: Any
) -> Outcome:
    """Run what is not finished of a recipe, and make its tables.

    The recipe may be the name of an included one, or the path of a TOML file. Instead of options, give fields of
    `BenchOptions`, such as ``folds=3, jobs=2``. Each run has its own directory below `out/RECIPE`, or
    `out/RECIPE-SCALE`. Calling it again resumes what was interrupted.
    """
    options = options or BenchOptions(**{"quiet": True, **given})
    recipe = read_recipe(recipe, options.data) if isinstance(recipe, str) else recipe
    grid = _cells(recipe, options)
    directory, kept, finished = _finished(recipe, grid, options)
    for run in finished.values():
        if kept is not None and run.run not in kept.runs:
            kept.add(run)

    def finish(index: int, run: Run) -> None:
        finished[index] = kept_run(grid[index], run)
        if kept is not None:
            kept.add(finished[index])

    at_a_time = options.jobs if workers is None else workers.at_a_time
    with grid_display(grid, set(finished), at_a_time, quiet=options.quiet or options.as_json) as display:
        todo = {index: cell for index, cell in enumerate(grid) if index not in finished}
        run_grid(todo, directory, display, jobs=options.jobs, workers=workers, finished=finish)
    recipe = replace(recipe, settings={**recipe.settings, **options.settings})
    runs = [finished[index] for index in range(len(grid))]
    return Outcome(recipe, options.scale or recipe.scale, grid, runs, directory)


def _cells(recipe: Recipe, options: BenchOptions) -> list[Cell]:
    return cells(recipe, folds=options.folds, scale=options.scale, given=options.settings)


def _finished(
    recipe: Recipe, grid: list[Cell], options: BenchOptions
) -> tuple[Path, KeptResults | None, dict[int, KeptRun]]:
    """The directory of a recipe's runs, the file that keeps results, and the finished and kept runs, by index.

    Raises ConfigError if a run has other settings.
    """
    scale = options.scale or recipe.scale
    name = recipe.name if scale == recipe.scale else f"{recipe.name}-{scale}"
    directory = options.out / name
    finished = {}
    for index, cell in enumerate(grid):
        run = Run(directory / cell.directory)
        if run.exists() and not run.config().learns_like(cell.config):
            raise ConfigError(f"{run.path} was run with other settings; delete it, or choose another {setting('out')}")
        if run.result() is not None:
            finished[index] = kept_run(cell, run)
    if options.keep is None:
        return directory, None, finished
    kept = KeptResults(options.keep / f"{name}.jsonl")
    return directory, kept, finished | kept.of(grid)


def run_recipes(names: Sequence[str], options: BenchOptions, files: OutputFiles, command: str) -> None:
    """Run recipes, by their names or paths, or list their runs; print their tables and write them to files.

    The command line is recorded in the Markdown file.
    """
    if not names:
        raise ConfigError(f"a recipe is missing; give one of {', '.join(recipe_names())}, or a file ending in .toml")
    recipes = [read_recipe(name, options.data) for name in names]
    grids = [_cells(recipe, options) for recipe in recipes]
    files.check()
    if options.dry_run:
        for recipe, grid in zip(recipes, grids, strict=True):
            _list_runs(recipe, grid, options)
        return
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    for recipe, grid in zip(recipes, grids, strict=True):  # a mistake in the last recipe is found before the first runs
        *_, finished = _finished(recipe, grid, options)
        load_datasets(cell for index, cell in enumerate(grid) if index not in finished)
    outcomes: list[Outcome] = []
    with nullcontext() if options.resources is None else connected(options.resources) as workers:
        for recipe in recipes:
            outcomes.append(run_recipe(recipe, options, workers=workers))
            _print_outcome(outcomes[-1], options)
            files.write(outcomes, command)


def _print_outcome(outcome: Outcome, options: BenchOptions) -> None:
    if options.as_json:
        for cell, run in zip(outcome.grid, outcome.runs, strict=True):
            values = {
                "recipe": outcome.recipe.name,
                "scale": outcome.scale,
                "row": cell.row.name,
                "dataset": cell.column.dataset,
                "fold": cell.fold,
                "run": str(outcome.directory / cell.directory),
            }
            errors = ("test_error", "val_error", "test_balanced_error", "val_balanced_error")
            shown = ("method", "labels", *errors, "diverged_at", "seconds")
            print(json.dumps({**values, **{name: getattr(run.result, name) for name in shown}}))
    elif not options.quiet:
        for table in outcome.tables:
            print_table(table, plain_console(wide=True))
        print(f"runs: {outcome.directory}", file=sys.stderr)


def _list_runs(recipe: Recipe, grid: list[Cell], options: BenchOptions) -> None:
    """Print the runs of a recipe, a line for each row and column, with the seconds of those that are finished."""
    *_, finished = _finished(recipe, grid, options)
    scale, known = options.scale or recipe.scale, sum(run.result.seconds for run in finished.values())
    if not options.as_json:
        print(f"{recipe.title} (scale {scale})")
    for row, column in dict.fromkeys((cell.row.name, cell.column.title) for cell in grid):
        folds = {i: cell for i, cell in enumerate(grid) if (cell.row.name, cell.column.title) == (row, column)}
        done = [finished[index].result.seconds for index in folds if index in finished]
        seconds = statistics.median(done) if done else None
        first = next(iter(folds.values()))
        steps = 0 if first.baseline else first.config.training.last_step
        if options.as_json:
            values = {"recipe": recipe.name, "scale": scale, "row": row, "column": column, "runs": len(folds)}
            print(json.dumps({**values, "steps": steps, "finished": len(done), "seconds": seconds}))
        else:
            known_of = f"; {len(done)} finished, {duration(seconds)} each" if done else ""
            print(f"  {row}, {column}: {len(folds)} × {steps:,} steps{known_of}")
    if not options.as_json:
        print(f"  {len(grid)} runs{f', {len(finished)} of them finished in {duration(known)}' if finished else ''}")
