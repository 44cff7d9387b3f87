"""Recipes: grids of runs (rows × datasets × labels × folds), at the scale of the paper or of a laptop.

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
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from rankingmatch.bench.baselines import BASELINES
from rankingmatch.core.errors import ConfigError, setting, unknown_name
from rankingmatch.core.imports import require_trusted
from rankingmatch.core.untrusted import BadFileError, Between, check_value, typed
from rankingmatch.data import Source, dataset_title, find_source
from rankingmatch.runs.config import Config, Plan, checked_settings, resolve, with_presets

RECIPES = resources.files("rankingmatch.bench") / "recipes"
ERRORS = "errors"
SECONDS, MEMORY = "seconds", "memory"
Figures = dict[str, tuple[str, ...]]  # row → a figure for each column, as it is printed
Count = Annotated[int, Between(1, 2**53)]


@dataclass(frozen=True)
class Column:
    """A dataset with a number of labels; None for the labels it comes with."""

    dataset: str
    labels: Count | None
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
    folds: Count = 5
    scale: str = "paper"
    settings: dict[str, Any] = field(default_factory=dict)
    measure: str = ""  # or "epoch" or "batch"
    paper: dict[str, Figures] = field(default_factory=dict)  # by quantity: errors, or seconds and memory

    def all_settings(self) -> list[dict[str, Any]]:
        """The settings of the recipe, of each row and of each column."""
        return [self.settings, *(row.settings for row in self.rows), *(column.settings for column in self.columns)]


@dataclass(frozen=True)
class Cell:
    """One run of a grid: its row, its column, its fold, and how it is trained (None where only its result is read)."""

    row: Row
    column: Column
    fold: int
    planned: Plan | None = None

    @property
    def plan(self) -> Plan:
        """How the run is trained."""
        assert self.planned is not None
        return self.planned

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.plan.config

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


def all_cells(recipe: Recipe, folds: int) -> Iterator[Cell]:
    """The runs of a grid, not planned; folds are the outermost loop."""
    for fold in range(folds):
        for column in recipe.columns:
            for row in recipe.rows:
                yield Cell(row, column, fold)


def cells(recipe: Recipe, *, folds: int | None, scale: str | None, given: Mapping[str, Any]) -> list[Cell]:
    """The runs of a grid, all planned and checked before the first one starts; folds are the outermost loop.

    `given` overrides the settings of the recipe and of the scale. Each folder is scanned once. The plan of a baseline
    is that of the runs beside it.
    """
    for name in ("labels", "seed"):
        if name in given:
            raise ConfigError(f"{setting(name)} is determined by the recipe; it cannot be set for all its runs")
    chosen = SCALES[scale or recipe.scale]
    if folds is None:
        folds = min(recipe.folds, chosen.folds or recipe.folds)
    sources: dict[str, Source] = {}
    grid = []
    for cell in all_cells(recipe, folds):
        row, column = cell.row, cell.column
        shared = {**recipe.settings, **column.settings}
        if column.dataset not in sources:
            paths = checked_settings({**shared, **given})
            files = {name: paths.get(name) for name in ("unlabeled", "labels_csv")}
            sources[column.dataset] = find_source(column.dataset, **files)
        source, method = sources[column.dataset], "supervised" if cell.baseline else row.method
        labels = {} if column.labels is None else {"labels": column.labels}
        settings = {**shared, **row.settings, "seed": cell.fold, **labels}
        checked_settings({**settings, **given})
        settings = scaled(chosen, source, method, settings)
        for length, other in (("epochs", "steps"), ("steps", "epochs")):
            if given.get(length) is not None and given.get(other) is None:
                settings.pop(other, None)
        plan = resolve(source.name, method, {**settings, **given}, source)
        network = plan.config.network
        if cell.baseline and not network.pretrained and network.weights is None:
            raise ConfigError(
                f"{row.method} needs features of a pretrained network; set {setting('pretrained')} or "
                f"{setting('weights')}, or remove it from the recipe"
            )
        grid.append(replace(cell, planned=plan))
    if len({cell.directory for cell in grid}) < len(grid):
        raise ConfigError(f"recipe '{recipe.name}' has runs with the same name; rename its rows")
    return grid


# --- scales -------------------------------------------------------------------------------------------------

PAPER_EPOCHS = 128


@dataclass(frozen=True)
class Scale:
    """What is reduced, all at once: images first, because they cost the most."""

    side: int | None = None  # largest side of an image
    steps: int | None = None  # of a run with 128 epochs in the paper
    mu: int | None = None  # unlabeled images per labeled one, at most
    folds: int | None = None  # at most
    settings: Mapping[str, Any] = field(default_factory=dict)  # of every run
    lengths: Mapping[str, int] = field(default_factory=dict)  # steps of datasets that need fewer or more


# Long enough for FixMatch to be well below the labels alone, and not much longer. Chosen on validation images
# (docs/reproduce.md): the length of each dataset, the learning rate, and an EMA that does not lag behind the weights.
_TINY = {"network": "small", "batch_size": 16, "learning_rate": 0.1, "threads": 1}
_LAPTOP = {**_TINY, "network": "wrn-10-2", "batch_size": 32, "ema_decay": 0.99, "precision": "auto"}

SCALES: dict[str, Scale] = {
    "paper": Scale(),
    "laptop": Scale(
        side=16, steps=5000, mu=4, folds=3, settings=_LAPTOP, lengths={"fashion-mnist": 2000, "cifar10": 8000}
    ),
    "tiny": Scale(side=8, steps=160, mu=3, folds=1, settings=_TINY),
}
EVALUATIONS = 5  # of a run that is not at the paper's scale


def scaled(scale: Scale, source: Source, method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run at this scale.

    The length stays in proportion (256 epochs stay twice 128), and so does the part of it that is run.
    """
    if scale.steps is None or scale.mu is None:
        return dict(settings)
    own = with_presets("", method, {}, {})  # not those for the dataset, which are for its size
    result = {**settings, **scale.settings}
    if "network" in own:  # a part of the method
        result["network"] = own["network"]
    native = settings.get("image_size") or max(source.shape[:2])
    if scale.side is not None and native > scale.side:
        result["image_size"] = scale.side
    result["mu"] = min(scale.mu, {**own, **settings}.get("mu", scale.mu))
    epochs = result.pop("epochs", None) or PAPER_EPOCHS
    steps = {**source.preset(settings.get("image_size")), **own, **settings}.get("steps")
    length = scale.lengths.get(source.name, scale.steps)
    result["steps"] = round(length * epochs / PAPER_EPOCHS) if steps is None else min(steps, length)
    result["evaluate_every"] = max(1, result["steps"] // EVALUATIONS)
    if "stop_after" in settings:
        share = settings["stop_after"] / (1024 * epochs)
        result["stop_after"] = min(result["steps"], max(20, round(share * result["steps"])))
    return result


# --- reading ------------------------------------------------------------------------------------------------


def recipe_names() -> list[str]:
    """The names of the included recipes."""
    return sorted(Path(item.name).stem for item in RECIPES.iterdir() if item.name.endswith(".toml"))


def read_recipe(name: str, data: str | None = None) -> Recipe:
    """The recipe in a TOML file, or the included one of that name; `data` replaces its dataset."""
    path = Path(name)
    if path.suffix != ".toml":
        if name not in recipe_names():
            raise unknown_name("recipe", name, recipe_names(), " (or a file ending in .toml)")
        return parse_recipe(name, (RECIPES / f"{name}.toml").read_text(encoding="utf-8"), data)
    if not path.is_file():
        raise ConfigError(f"recipe {path}: there is no such file")
    try:
        recipe = parse_recipe(path.stem, path.read_text(encoding="utf-8"), data)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe {path} cannot be read: {error}") from error
    for row in recipe.rows:
        require_trusted("method", row.method, path)
    for settings in recipe.all_settings():
        if isinstance(network := settings.get("network"), str):
            require_trusted("network", network, path)
    return recipe


def parse_recipe(name: str, text: str, data: str | None = None) -> Recipe:
    """A recipe from its TOML text; `data` replaces its dataset."""
    tables = dict[str, dict[str, Any]]
    try:
        values = tomllib.loads(text)
        rows = [{"name": one, "method": one} for one in check_value("methods", values.pop("methods", []), list[str])]
        for title, settings in check_value("rows", values.pop("rows", {}), tables).items():
            method = check_value(f"method of row '{title}'", settings.pop("method", None), str)
            rows.append({"name": title, "method": method, "settings": settings})
        datasets = check_value("datasets", values.pop("datasets", {}), tables)
        if data is not None and len(datasets) != 1:
            raise BadFileError(f"{setting('data')} needs a recipe with one dataset")
        columns = []
        for dataset, settings in datasets.items():
            numbers = check_value(f"labels of '{dataset}'", settings.pop("labels", [None]), list[Count | None])
            if not numbers:
                raise BadFileError(f"labels of '{dataset}' must be a list of numbers above 0")
            shared = {"dataset": dataset if data is None else data, "settings": settings}
            columns += [{**shared, "labels": labels} for labels in numbers]
        paper = values.pop("paper", {})
        paper = paper if values.get("measure") else {ERRORS: paper}
        recipe = typed(Recipe, dict(**values, name=name, rows=rows, columns=columns, paper=paper))
        if not (recipe.rows and recipe.columns and recipe.title):
            raise BadFileError("it needs a title, methods or [rows], and [datasets]")
        if recipe.scale not in SCALES:
            raise BadFileError(f"scale must be one of {', '.join(SCALES)}")
        if recipe.measure not in ("", "epoch", "batch"):
            raise BadFileError("measure must be epoch or batch")
        for quantity, table in recipe.paper.items():
            if quantity not in (SECONDS, MEMORY, ERRORS):
                raise BadFileError(f"paper.{quantity} must be one of the quantities {SECONDS} and {MEMORY}")
            for row, figures in table.items():
                if len(figures) != len(columns):
                    raise BadFileError(f"paper: '{row}' must have {len(columns)} figures, one per column")
    except (ValueError, TypeError, RecursionError) as error:  # ValueError: not TOML, or a huge number
        raise ConfigError(f"recipe '{name}' cannot be read: {error}") from error
    return recipe
