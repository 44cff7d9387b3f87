"""Grids of runs carried out, and the tables they give."""

import contextlib
import datetime
import json
import os
import platform
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from rankingmatch.atomic import write_atomically
from rankingmatch.config import Config
from rankingmatch.display import Display, display_for, follow
from rankingmatch.errors import ConfigError, DivergedError
from rankingmatch.job import begin
from rankingmatch.recipe import Cell, Recipe, cells, read_recipe, recipe_names
from rankingmatch.run import Result, Run


@dataclass(frozen=True)
class Row:
    """A line of a table: the folds of one method, variation and number of labels."""

    method: str
    variation: str
    labels: int
    results: tuple[Result, ...]

    def errors(self) -> list[float]:
        """The test errors of the folds that came to an end."""
        return [result.test_error for result in self.results if result.test_error is not None]

    def mean(self) -> float | None:
        """The mean test error, if every fold came to an end."""
        return statistics.mean(self.errors()) if len(self.errors()) == len(self.results) else None

    def validation_text(self) -> str:
        """Mean validation error: what settings may be chosen by."""
        errors = [result.val_error for result in self.results if result.val_error is not None]
        return _mean_sd(errors) if errors else "–"

    def error_text(self) -> str:
        """Mean ± standard deviation, or, as the paper writes it, NaN-step where a run diverged."""
        if self.mean() is None:
            steps = [result.diverged_at for result in self.results]
            return ", ".join(f"NaN-{step}" for step in steps if step is not None) or "–"
        return _mean_sd(self.errors())

    def seconds(self) -> float:
        """Mean seconds per run."""
        return statistics.mean(result.seconds for result in self.results)


def run_recipes(names: Iterable[str], folds: int | None, out: Path, markdown: Path | None, as_json: bool) -> None:
    """Run each recipe, print its table, and write all tables into a Markdown file if asked."""
    names = list(names)
    if not names:
        raise ConfigError(f"which recipe? one of: {', '.join(recipe_names())}; or a file ending in .toml")
    recipes = [read_recipe(name) for name in names]
    grids = [cells(recipe, folds or recipe.folds) for recipe in recipes]
    if markdown is not None and not markdown.parent.is_dir():
        raise ConfigError(f"--markdown {markdown}: there is no directory {markdown.parent}")
    texts = []
    for recipe, grid in zip(recipes, grids, strict=True):
        rows = run_grid(grid, out / recipe.name, display_for(quiet=as_json))
        if as_json:
            _print_json(recipe, rows)
        else:
            print_table(recipe, rows)
        texts.append(markdown_table(recipe, rows))
    if markdown is not None:
        flags = [*(["--folds", str(folds)] if folds else []), "--out", str(out), "--markdown", str(markdown)]
        write_atomically(markdown, (_preface(["rankingmatch bench", *names, *flags]) + "\n".join(texts)).encode())


def run_grid(grid: list[Cell], out: Path, display: Display) -> list[Row]:
    """Run what is not finished yet and gather the results into rows."""
    rows: dict[tuple[str, str, int], list[Result]] = {}
    for number, cell in enumerate(grid, 1):
        if Run(out / cell.directory).result() is None:
            display.note(f"\nrun {number} of {len(grid)}")
        result = run_cell(Run(out / cell.directory), cell.config, display)
        rows.setdefault((cell.method, cell.variation, cell.labels), []).append(result)
    return [Row(*key, tuple(results)) for key, results in rows.items()]


def run_cell(run: Run, config: Config, display: Display) -> Result:
    """The result of a run: kept if it is there, else trained, from its checkpoint if it was interrupted."""
    if run.exists() and not run.config().learns_as(config):
        raise ConfigError(f"{run.path} was run with other settings; choose another --out or remove it")
    result = run.result()
    if result is None:
        # A run that diverges says so in its result, as the paper's ablation has it.
        with contextlib.suppress(DivergedError):
            follow(begin(run, config), display, "run the same command again")
        result = run.result()
    assert result is not None
    return result


def _mean_sd(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def _columns(rows: list[Row]) -> list[str]:
    variation = ["variation"] if any(row.variation for row in rows) else []
    folds = ["folds"] if any(len(row.results) > 1 for row in rows) else []
    return ["method", *variation, "labels", *folds, "test error %", "seconds"]


def _values(row: Row, columns: list[str]) -> list[str]:
    texts = {
        "method": row.method,
        "variation": row.variation,
        "labels": str(row.labels),
        "folds": str(len(row.results)),
        "validation error %": row.validation_text(),
        "test error %": row.error_text(),
        "test error of each fold": ", ".join(f"{error:.2f}" for error in row.errors()),
        "seconds": f"{row.seconds():.0f}",
    }
    return [texts[column] for column in columns]


def print_table(recipe: Recipe, rows: list[Row]) -> None:
    """The table of a grid in the terminal."""
    columns = _columns(rows)
    first, *others = columns
    table = Table(Column(first, no_wrap=True), *others, title=Text(recipe.title), title_justify="left", box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*_values(row, columns))
    Console().print(table)


def markdown_table(recipe: Recipe, rows: list[Row]) -> str:
    """The table of a grid in Markdown, the lowest error in bold, each fold's error beside it."""
    columns = [*_columns(rows), "validation error %", "test error of each fold"]
    best = min((mean for row in rows if (mean := row.mean()) is not None), default=None)
    lines = [f"## {recipe.title}", "", "| " + " | ".join(columns) + " |"]
    lines.append("|" + "---|" * len(columns))
    for row in rows:
        values = _values(row, columns)
        if best is not None and row.mean() == best:
            place = columns.index("test error %")
            values[place] = f"**{values[place]}**"
        lines.append("| " + " | ".join(values) + " |")
    return "\n".join([*lines, ""])


def _preface(command: list[str]) -> str:
    today = datetime.date.today().isoformat()
    return (
        "# Results\n\n"
        f"Written by `{' '.join(command)}` on {today}, on {platform.machine()} with {os.cpu_count()} CPU cores. "
        "Errors of the EMA weights at the last step, mean ± standard deviation over folds; a fold is a seed, "
        "which decides the labels, the initial weights and every draw. Seconds are wall time per run.\n\n"
    )


def _print_json(recipe: Recipe, rows: list[Row]) -> None:
    for row in rows:
        values = {
            "recipe": recipe.name,
            "method": row.method,
            "variation": row.variation,
            "labels": row.labels,
            "test_errors": row.errors(),
            "diverged_at": [result.diverged_at for result in row.results],
            "seconds": row.seconds(),
        }
        print(json.dumps(values))
