"""Recipes: grids of runs (rows × datasets × labels × folds).

A recipe is a short TOML file with everything that differs from the defaults:

    title = "CIFAR-10 and SVHN"
    methods = ["supervised", "rankingmatch-bm"]     # one row of the table each; baselines.py has names, too
    folds = 5
    scale = "laptop"                                # optional; else "paper"

    [datasets.cifar10]                              # one column for each number of labels
    labels = [250, 4000]
    epochs = 256                                    # any option, for the runs on this dataset
    [datasets.stl10]                                # no labels: the ones it comes with

    [settings]                                      # any option, for all runs
    mu = 7

    [rows."without L2"]                             # further rows: a method with options of its own
    method = "rankingmatch-bm"
    l2_normalize = false

    [paper]                                         # the paper's figures, column by column ("" where it has none);
    "rankingmatch-bm" = ["6.77 ± 0.89", "", ""]     # a name that is not a row is shown as cited

With `measure = "epoch"` or `"batch"`, the table shows seconds and peak memory instead of errors, and `paper` has
two such tables, `paper.seconds` and `paper.memory`.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from rankingmatch.bench.baselines import BASELINES, require_features
from rankingmatch.bench.scale import SCALES, Scale, scaled
from rankingmatch.core.errors import ConfigError, setting, unknown_name
from rankingmatch.core.imports import require_trusted
from rankingmatch.data import Source, dataset_title, find_source
from rankingmatch.runs.config import Config, Plan, absolute_paths, check_settings, resolve

RECIPES = resources.files("rankingmatch.bench") / "recipes"
ERRORS = "errors"
SECONDS, MEMORY = "seconds", "memory"
Figures = dict[str, tuple[str, ...]]  # row → a figure for each column, as it is printed


@dataclass(frozen=True)
class Column:
    """A dataset with a number of labels; None for the labels it comes with."""

    dataset: str
    labels: int | None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The title of the column."""
        name = dataset_title(self.dataset)
        return name if self.labels is None else f"{name}, {self.labels} labels"


@dataclass(frozen=True)
class Row:
    """A row of the table: a method, or a baseline, with options of its own."""

    name: str
    method: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """A grid of runs, and the table that compares them."""

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    folds: int = 5
    scale: str = "paper"
    settings: dict[str, Any] = field(default_factory=dict)
    measure: Literal["", "epoch", "batch"] = ""
    paper: dict[str, Figures] = field(default_factory=dict)  # by quantity: errors, or seconds and memory


@dataclass(frozen=True)
class Cell:
    """One run of a grid: its row, its column and its fold."""

    row: Row
    column: Column
    fold: int

    @property
    def baseline(self) -> str | None:
        """The name of the baseline; None for a run."""
        return self.row.method if self.row.method in BASELINES else None

    @property
    def title(self) -> str:
        """A description of the run."""
        return f"{self.row.name}, {self.column.title}, fold {self.fold}"

    @property
    def directory(self) -> str:
        """The name of the run directory, unique in the grid."""
        words = [self.column.dataset, self.column.labels, self.row.name.replace(":", "."), self.fold]
        return re.sub(r"[^\w.+-]+", "_", "-".join(str(word) for word in words if word is not None))


@dataclass(frozen=True)
class PlannedCell(Cell):
    """One run of a grid, ready to be trained."""

    plan: Plan

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.plan.config


def all_cells(recipe: Recipe, folds: int) -> Iterator[Cell]:
    """The runs of a grid; folds are the outermost loop."""
    for fold in range(folds):
        for column in recipe.columns:
            for row in recipe.rows:
                yield Cell(row, column, fold)


def cells(recipe: Recipe, *, folds: int | None, scale: str | None, given: Mapping[str, Any]) -> list[PlannedCell]:
    """The runs of a grid, all checked before the first one starts; folds are the outermost loop.

    `given` overrides the settings of the recipe and of the scale. Each folder is scanned once.
    """
    for name in ("labels", "seed"):
        if name in given:
            raise ConfigError(f"{setting(name)} is determined by the recipe; it cannot be set for all its runs")
    chosen = SCALES[scale or recipe.scale]
    if folds is None:
        folds = recipe.folds if chosen.folds is None else min(recipe.folds, chosen.folds)
    sources = {column.dataset: _source(recipe, column, given) for column in recipe.columns}

    def planned(row: Row, column: Column, fold: int) -> PlannedCell:
        settings = _settings(recipe, row, column, fold)
        return PlannedCell(row, column, fold, _plan(settings, row.method, sources[column.dataset], chosen, given))

    grid = [planned(cell.row, cell.column, cell.fold) for cell in all_cells(recipe, folds)]
    if len({cell.directory for cell in grid}) < len(grid):
        raise ConfigError(f"recipe '{recipe.name}' has runs with the same name; rename its rows")
    return grid


def _source(recipe: Recipe, column: Column, given: Mapping[str, Any]) -> Source:
    """The dataset or folder of a column."""
    settings = {**recipe.settings, **column.settings, **given}
    check_settings(settings)
    settings = absolute_paths(settings)
    return find_source(column.dataset, unlabeled=settings.get("unlabeled"), labels_csv=settings.get("labels_csv"))


def _settings(recipe: Recipe, row: Row, column: Column, fold: int) -> dict[str, Any]:
    """The settings of a run, at the scale of the paper."""
    labels = {} if column.labels is None else {"labels": column.labels}
    return {**recipe.settings, **column.settings, **row.settings, "seed": fold, **labels}


def _plan(settings: dict[str, Any], method: str, source: Source, scale: Scale, given: Mapping[str, Any]) -> Plan:
    """The plan of a run, with the settings of a recipe at a scale; of a baseline, that of the runs beside it."""
    check_settings({**settings, **given})
    trained = "supervised" if method in BASELINES else method
    settings = scaled(scale, source, trained, settings)
    for length, other in (("epochs", "steps"), ("steps", "epochs")):
        if given.get(length) is not None and given.get(other) is None:
            settings.pop(other, None)
    plan = resolve(source.name, trained, {**settings, **given}, source)
    if method in BASELINES:
        require_features(method, plan.config)
    return plan


# --- reading ------------------------------------------------------------------------------------------------


def recipe_names() -> list[str]:
    """The names of the included recipes."""
    return sorted(Path(item.name).stem for item in RECIPES.iterdir() if item.name.endswith(".toml"))


def read_recipe(name: str, data: str | None = None) -> Recipe:
    """The recipe in a TOML file, or the included one of that name; `data` replaces its dataset."""
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"recipe {path}: there is no such file")
        try:
            recipe = parse_recipe(path.stem, path.read_text(encoding="utf-8"), data)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"recipe {path} cannot be read: {error}") from error
        _require_trusted(recipe, path)
        return recipe
    if name not in recipe_names():
        raise unknown_name("recipe", name, recipe_names(), " (or a file ending in .toml)")
    return parse_recipe(name, (RECIPES / f"{name}.toml").read_text(encoding="utf-8"), data)


def _require_trusted(recipe: Recipe, path: Path) -> None:
    """Raise ConfigError if a recipe names code that the user neither trusts nor has given."""
    parts: tuple[Recipe | Row | Column, ...] = (recipe, *recipe.rows, *recipe.columns)
    networks = [part.settings.get("network") for part in parts]
    for kind, names in (("method", [row.method for row in recipe.rows]), ("network", networks)):
        for name in names:
            if isinstance(name, str):
                require_trusted(kind, name, path)


def parse_recipe(name: str, text: str, data: str | None = None) -> Recipe:
    """A recipe from its TOML text; `data` replaces its dataset."""
    try:
        values = tomllib.loads(text)
        rows = tuple(_rows(values.pop("methods", []), values.pop("rows", {})))
        columns = tuple(_columns(_replaced(values.pop("datasets", {}), data)))
        _expect(bool(rows), "it has no methods and no [rows]")
        _expect(bool(columns), "it has no [datasets]")
        _expect(isinstance(values.get("title"), str) and values["title"] != "", "title must be a text")
        _expect(type(values.get("folds", 1)) is int and values.get("folds", 1) > 0, "folds must be a number above 0")
        _expect(values.get("scale", "paper") in SCALES, f"scale must be one of {', '.join(SCALES)}")
        _expect(values.get("measure", "") in ("", "epoch", "batch"), "measure must be epoch or batch")
        _expect(isinstance(values.get("settings", {}), dict), "settings must be a table")
        paper = _figures(values.pop("paper", {}), len(columns), costs=bool(values.get("measure")))
        return Recipe(name=name, rows=rows, columns=columns, paper=paper, **values)
    except (
        ValueError,
        TypeError,
        RecursionError,
    ) as error:  # ValueError: not TOML, or a huge number
        raise ConfigError(f"recipe '{name}' cannot be read: {error}") from error


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise TypeError(otherwise)


def _rows(methods: Any, rows: Any) -> Iterator[Row]:
    _expect(isinstance(methods, list), "methods must be a list of names")
    for method in methods:
        _expect(isinstance(method, str), "methods must be a list of names")
        yield Row(method, method)
    _expect(isinstance(rows, dict), "rows must be tables")
    for name, settings in rows.items():
        _expect(isinstance(settings, dict) and isinstance(settings.get("method"), str), f"row '{name}' has no method")
        yield Row(name, settings.pop("method"), settings)


def _replaced(datasets: Any, data: str | None) -> Any:
    """The tables of the datasets, with another name if there is only one."""
    if data is None:
        return datasets
    _expect(isinstance(datasets, dict) and len(datasets) == 1, f"{setting('data')} needs a recipe with one dataset")
    return {data: next(iter(datasets.values()))}


def _columns(datasets: Any) -> Iterator[Column]:
    _expect(isinstance(datasets, dict), "datasets must be tables")
    for dataset, settings in datasets.items():
        _expect(isinstance(settings, dict), f"dataset '{dataset}' must be a table")
        numbers = settings.pop("labels", [None])
        good = isinstance(numbers, list) and all(n is None or (type(n) is int and n > 0) for n in numbers)
        _expect(good and bool(numbers), f"labels of '{dataset}' must be a list of numbers above 0")
        for labels in numbers:
            yield Column(dataset, labels, settings)


def _figures(paper: Any, columns: int, *, costs: bool) -> dict[str, Figures]:
    _expect(isinstance(paper, dict), "paper must be a table")
    tables = paper if costs else {ERRORS: paper}
    for quantity, table in tables.items():
        allowed = (SECONDS, MEMORY) if costs else (ERRORS,)
        _expect(quantity in allowed and isinstance(table, dict), f"paper.{quantity} must be one of the quantities")
        for name, figures in table.items():
            good = isinstance(figures, list) and all(isinstance(figure, str) for figure in figures)
            _expect(good and len(figures) == columns, f"paper: '{name}' must have {columns} figures, one per column")
    return {quantity: {name: tuple(row) for name, row in table.items()} for quantity, table in tables.items()}
