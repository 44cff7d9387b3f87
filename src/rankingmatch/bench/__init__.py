"""Grids of runs and the tables they give."""

from rankingmatch.bench.command import BenchOptions, OutputFiles, run_recipe, run_recipes
from rankingmatch.bench.recipe import Recipe, parse_recipe, read_recipe, recipe_names
from rankingmatch.bench.results import Outcome

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
