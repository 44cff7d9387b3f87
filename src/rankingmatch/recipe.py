"""Recipes: grids of runs (methods × variations × labels × folds).

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

import re
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from rankingmatch.config import Config, resolve
from rankingmatch.errors import ConfigError, unknown_name

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


def recipe_names() -> list[str]:
    """The recipes that come along."""
    return sorted(Path(item.name).stem for item in RECIPES.iterdir() if item.name.endswith(".toml"))


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
    if name not in recipe_names():
        raise unknown_name("recipe", name, recipe_names(), " (or a file ending in .toml)")
    return parse_recipe(name, (RECIPES / f"{name}.toml").read_text())


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
