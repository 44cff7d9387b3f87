"""Grids of runs and the tables they give: running recipes, and printing and writing their tables."""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rankingmatch.bench.cluster import Resources, connected
from rankingmatch.bench.curves import draw
from rankingmatch.bench.grid import Workers, grid_display, load_datasets, run_grid
from rankingmatch.bench.recipe import Cell, Recipe, cells, parse_recipe, read_recipe, recipe_names
from rankingmatch.bench.results import Outcome, keep_runs, kept_of, kept_run, markdown_page
from rankingmatch.bench.tables import csv_rows, latex, print_table
from rankingmatch.core.atomic import write_output
from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.names import plain_console, to_utf8
from rankingmatch.report.figures import require_plotting
from rankingmatch.runs.directory import Run
from rankingmatch.runs.display import duration

__all__ = [
    "BenchOptions",
    "Outcome",
    "OutputFiles",
    "Recipe",
    "parse_recipe",
    "read_recipe",
    "recipe_names",
    "run_recipe",
    "run_recipes",
]


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
        if self.figures is not None and not draw(outcomes[-1], self.figures):  # the others have been drawn
            name = outcomes[-1].recipe.name
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


def run_recipe(recipe: Recipe | str, *, workers: Workers | None = None, **given: Any) -> Outcome:
    """Run what is not finished of a recipe, and make its tables.

    The recipe may be the name of an included one, or the path of a TOML file. Give fields of `BenchOptions`, such as
    ``folds=3, jobs=2``. Each run has its own directory below `out/RECIPE`, or `out/RECIPE-SCALE`. Calling it again
    resumes what was interrupted.
    """
    options = BenchOptions(**{"quiet": True, **given})
    recipe = read_recipe(recipe, options.data) if isinstance(recipe, str) else recipe
    return _run(_so_far(recipe, options), options, workers)


def _so_far(recipe: Recipe, options: BenchOptions) -> Outcome:
    """The grid, and the outcome of the finished and the kept runs; ConfigError if one has other settings."""
    grid = cells(recipe, folds=options.folds, scale=options.scale, given=options.settings)
    scale = options.scale or recipe.scale
    directory = options.out / (recipe.name if scale == recipe.scale else f"{recipe.name}-{scale}")
    runs = {}
    for cell in grid:
        run = Run(directory / cell.directory)
        if run.exists() and not run.config().learns_like(cell.config):
            raise ConfigError(f"{run.path} was run with other settings; delete it, or choose another {setting('out')}")
        if run.result() is not None:
            runs[cell.directory] = kept_run(cell, run)
    if options.keep is not None:
        runs |= kept_of(grid, options.keep / f"{directory.name}.jsonl")
    recipe = replace(recipe, settings={**recipe.settings, **options.settings})
    return Outcome(recipe, scale, grid, runs, directory)


def _run(outcome: Outcome, options: BenchOptions, workers: Workers | None) -> Outcome:
    """Run what is not finished, and add it to the outcome and to the file of kept results."""
    grid, runs, directory = outcome.grid, outcome.runs, outcome.directory
    path = None if options.keep is None else options.keep / f"{directory.name}.jsonl"
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        keep_runs(path, runs.values())

    def finish(cell: Cell, run: Run) -> None:
        runs[cell.directory] = kept_run(cell, run)
        if path is not None:
            keep_runs(path, [runs[cell.directory]])

    at_a_time = options.jobs if workers is None else workers.at_a_time
    with grid_display(grid, set(runs), at_a_time, quiet=options.quiet or options.as_json) as display:
        todo = [cell for cell in grid if cell.directory not in runs]
        run_grid(todo, directory, display, jobs=options.jobs, workers=workers, finished=finish)
    return outcome


def run_recipes(names: Sequence[str], options: BenchOptions, files: OutputFiles, command: str) -> None:
    """Run recipes, by their names or paths, or list their runs; print their tables and write them to files.

    The command line is recorded in the Markdown file.
    """
    if not names:
        raise ConfigError(f"a recipe is missing; give one of {', '.join(recipe_names())}, or a file ending in .toml")
    files.check()
    outcomes = [_so_far(read_recipe(name, options.data), options) for name in names]
    if options.dry_run:
        for outcome in outcomes:
            _list_runs(outcome, options)
        return
    for outcome in outcomes:  # a mistake in the last recipe is found before the first runs
        load_datasets(cell for cell in outcome.grid if cell.directory not in outcome.runs)
    with nullcontext() if options.resources is None else connected(options.resources) as workers:
        for number, outcome in enumerate(outcomes, 1):
            _run(outcome, options, workers)
            _print_outcome(outcome, options)
            files.write(outcomes[:number], command)


def _print_outcome(outcome: Outcome, options: BenchOptions) -> None:
    if options.as_json:
        for cell in outcome.grid:
            values = {
                "recipe": outcome.recipe.name,
                "scale": outcome.scale,
                "row": cell.row.name,
                "dataset": cell.column.dataset,
                "fold": cell.fold,
                "run": str(outcome.directory / cell.directory),
            }
            errors = ("test_error", "val_error", "test_balanced_error", "val_balanced_error")
            result = outcome.runs[cell.directory].result
            shown = ("method", "labels", *errors, "diverged_at", "seconds")
            print(json.dumps({**values, **{name: getattr(result, name) for name in shown}}))
    elif not options.quiet:
        for table in outcome.tables:
            print_table(table, plain_console(wide=True))
        print(f"runs: {outcome.directory}", file=sys.stderr)


def _list_runs(outcome: Outcome, options: BenchOptions) -> None:
    """Print the runs of a recipe, a line for each row and column, with the seconds of those that are finished."""
    recipe, scale, grid = outcome.recipe, outcome.scale, outcome.grid
    if not options.as_json:
        print(f"{recipe.title} (scale {scale})")
    for row, column in dict.fromkeys((cell.row.name, cell.column.title) for cell in grid):
        folds = [cell for cell in grid if (cell.row.name, cell.column.title) == (row, column)]
        done = [run.result.seconds for run in outcome.of(row, column)]
        seconds = statistics.median(done) if done else None
        steps = 0 if folds[0].baseline else folds[0].config.training.last_step
        if options.as_json:
            values = {"recipe": recipe.name, "scale": scale, "row": row, "column": column, "runs": len(folds)}
            print(json.dumps({**values, "steps": steps, "finished": len(done), "seconds": seconds}))
        else:
            known = f"; {len(done)} finished, {duration(seconds)} each" if done else ""
            print(f"  {row}, {column}: {len(folds)} × {steps:,} steps{known}")
    if not options.as_json:
        spent = duration(sum(run.result.seconds for run in outcome.runs.values()))
        finished = f", {len(outcome.runs)} of them finished in {spent}" if outcome.runs else ""
        print(f"  {len(grid)} runs{finished}")
