"""Grids of runs (methods × variations × labels × folds) and the tables they give.

A recipe is a short TOML file that says only what differs from the defaults:

    title = "Digits"
    dataset = "digits"
    labels = [40]
    methods = ["supervised", "rankingmatch-bm"]
    folds = 5

    [settings]                  # options of any room or method, for all runs
    steps = 1000

    [variations]                # optional: each is run for each method
    "joint pass" = { weak_pass = "joint" }
"""

import contextlib
import datetime
import json
import os
import platform
import re
import statistics
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from rankingmatch.checkpoint import write_atomically
from rankingmatch.config import Config, resolve
from rankingmatch.display import Display, display_for, follow
from rankingmatch.errors import ConfigError, DivergedError, unknown_name
from rankingmatch.job import begin
from rankingmatch.run import Result, Run

RECIPES = resources.files("rankingmatch") / "recipes"
RECIPE_KINDS: dict[str, tuple[type, str, bool]] = {
    "title": (str, "a text", True),
    "dataset": (str, "a text", True),
    "labels": (list, "a list", True),
    "methods": (list, "a list", True),
    "folds": (int, "a number", False),
    "settings": (dict, "a table", False),
    "variations": (dict, "a table", False),
}


@dataclass(frozen=True)
class Recipe:
    """A grid of runs."""

    name: str
    title: str
    dataset: str
    labels: tuple[int, ...]
    methods: tuple[str, ...]
    folds: int = 5
    settings: dict[str, Any] = field(default_factory=dict)
    variations: dict[str, dict[str, Any]] = field(default_factory=lambda: {"": {}})


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    method: str
    variation: str
    labels: int
    fold: int
    config: Config

    @property
    def directory(self) -> str:
        """A name for the run directory that says which cell it is."""
        words = [
            self.config.dataset,
            str(self.labels),
            self.method.replace(":", "."),
            self.variation,
            str(self.fold),
        ]
        return re.sub(r"[^\w.+-]+", "_", "-".join(word for word in words if word))


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


def read_recipe(name: str) -> Recipe:
    """The recipe in a TOML file, or the one of that name that comes with the package."""
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"recipe {path}: there is no such file")
        try:
            return parse_recipe(path.stem, path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"recipe {path} cannot be read: {error}") from error
    known = {Path(item.name).stem: item for item in RECIPES.iterdir() if item.name.endswith(".toml")}
    if name not in known:
        raise unknown_name("recipe", name, known, " (or a file ending in .toml)")
    return parse_recipe(name, known[name].read_text())


def parse_recipe(name: str, text: str) -> Recipe:
    """A recipe from its TOML text."""
    try:
        values = tomllib.loads(text)
        for key, (kind, word, required) in RECIPE_KINDS.items():
            if (required or key in values) and not (isinstance(values.get(key), kind) and values[key]):
                raise TypeError(f"{key} must be {word} that is not empty")
        if not all(isinstance(method, str) for method in values["methods"]):
            raise TypeError("methods must be a list of names")
        if not all(isinstance(settings, dict) for settings in values.get("variations", {}).values()):
            raise TypeError("each variation must be a table of settings")
        values |= {key: tuple(values[key]) for key in ("labels", "methods")}
        return Recipe(name=name, **values)
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise ConfigError(f"recipe '{name}' cannot be read: {error}") from error


def cells(recipe: Recipe, folds: int) -> list[Cell]:
    """The runs of a grid, their settings checked before the first begins; folds are the outermost loop."""
    grid = [
        Cell(method, variation, labels, fold, _config(recipe, method, variation, labels, fold))
        for fold in range(folds)
        for labels in recipe.labels
        for method in recipe.methods
        for variation in recipe.variations
    ]
    if len({cell.directory for cell in grid}) < len(grid):
        raise ConfigError(f"recipe '{recipe.name}' has runs that cannot be told apart; name its variations otherwise")
    return grid


def _config(recipe: Recipe, method: str, variation: str, labels: int, fold: int) -> Config:
    settings = {**recipe.settings, **recipe.variations[variation], "labels": labels, "seed": fold}
    return resolve(recipe.dataset, method, settings)


def run_grid(grid: list[Cell], out: Path, display: Display) -> list[Row]:
    """Run what is not finished yet and gather the results into rows."""
    rows: dict[tuple[str, str, int], list[Result]] = {}
    for cell in grid:
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
            follow(begin(run, config), display, "the same command")
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
