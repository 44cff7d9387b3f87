"""Recipes and scales."""

import pytest

from rankingmatch.bench import Recipe, parse_recipe, read_recipe, recipe_names
from rankingmatch.bench.recipe import SCALES, Cell, Scale, cells, scaled
from rankingmatch.core.errors import ConfigError
from rankingmatch.data import benchmark

TEXT = """
title = "Mine"
methods = ["supervised", "fixmatch-ra"]
folds = 3
[settings]
mu = 2
[datasets.digits]
labels = [20, 40]
[datasets.cifar10]
labels = [250]
epochs = 256
[rows.strict]
method = "fixmatch-ra"
threshold = 0.99
[paper]
supervised = ["1.00 ± 0.10", "", "3.00"]
"SWWAE*" = ["", "", "25.67"]
"""


def grid(recipe: Recipe, **others: object) -> list[Cell]:
    return cells(recipe, **{"folds": None, "scale": None, "given": {}, **others})  # type: ignore[arg-type]


def test_a_grid_is_rows_by_columns_by_folds() -> None:
    made = grid(parse_recipe("mine", TEXT))
    assert len(made) == 3 * 3 * 3
    assert len({cell.directory for cell in made}) == len(made)
    assert {cell.config.training.seed for cell in made} == {0, 1, 2}
    assert {cell.column.title for cell in made} == {"Digits, 20 labels", "Digits, 40 labels", "CIFAR-10, 250 labels"}
    assert {cell.config.hyperparameters.get("threshold") for cell in made} == {None, 0.95, 0.99}
    assert {cell.config.training.epochs for cell in made if cell.column.dataset == "cifar10"} == {256}
    assert {cell.config.training.mu for cell in made} == {2}


def test_what_is_given_comes_before_the_recipe() -> None:
    assert {cell.config.training.mu for cell in grid(parse_recipe("mine", TEXT), given={"mu": 5})} == {5}
    with pytest.raises(ConfigError, match="labels"):
        grid(parse_recipe("mine", TEXT), given={"labels": 5})


# Those for photographs have a test of their own (test_baselines.py): they need a folder, and images of their size.
@pytest.mark.parametrize("name", [name for name in recipe_names() if not name.startswith("photos")])
@pytest.mark.parametrize("scale", SCALES)
def test_every_recipe_that_comes_along_can_be_run_at_every_scale(name: str, scale: str) -> None:
    recipe = read_recipe(name)
    assert grid(recipe, scale=scale)
    if recipe.measure:
        assert all(cell.config.execution.measure_steps for cell in grid(recipe, scale=scale))


def test_the_papers_tables_are_there_to_the_letter() -> None:
    assert {*(f"table{n}" for n in (1, 2, 3, 4, 5, 9, 10, 11)), "tiny-imagenet"} <= set(recipe_names())
    first = grid(read_recipe("table1"))[0].config
    assert (first.training.total_steps, first.training.batch_size) == (131_072, 64)
    assert first.network.network == "wrn-28-2"
    assert first.data.image_size is None
    large = [cell for cell in grid(read_recipe("table2")) if cell.column.dataset == "cifar100"]
    assert {cell.config.network.network for cell in large} == {"wrn-28-2-large"}
    long = [cell for cell in grid(read_recipe("table2")) if cell.column.dataset == "cifar10"]
    assert {cell.config.training.total_steps for cell in long} == {262_144}
    stl = grid(read_recipe("table4"))
    assert {cell.config.training.seed for cell in stl} == {0, 1, 2}
    assert {(cell.config.data.labels, cell.config.training.batch_size) for cell in stl} == {(None, 32)}
    networks = {cell.config.method: cell.config.network.network for cell in stl}
    assert networks == {"swwae": "swwae"} | dict.fromkeys(set(networks) - {"swwae"}, "wrn-37-2")
    reduced = grid(read_recipe("table4"), scale="laptop")
    assert {cell.config.network.network for cell in reduced if cell.config.method == "swwae"} == {"swwae-small"}
    assert {cell.config.hyperparameters["l2_normalize"] for cell in grid(read_recipe("table5"))} == {True, False}
    beginning = grid(read_recipe("table10"))[0].config.training
    assert (beginning.last_step, beginning.total_steps) == (5100, 131_072)


@pytest.mark.parametrize(
    "text",
    [
        "title = ",
        TEXT.replace('title = "Mine"', ""),
        TEXT.replace('"supervised", "fixmatch-ra"', "1"),
        TEXT.replace("folds = 3", "folds = 0"),
        TEXT.replace("folds = 3", 'colour = "red"'),
        TEXT.replace("folds = 3", 'scale = "huge"'),
        TEXT.replace("folds = 3", 'measure = "year"'),
        TEXT.replace("[20, 40]", "[]"),
        TEXT.replace('method = "fixmatch-ra"', ""),
        TEXT.replace('["", "", "25.67"]', '["25.67"]'),
        'title = "x"\nmethods = ["supervised"]',
        'title = "x"\n[datasets.digits]\n',
        'title = "x"\ndatasets = ["digits"]\nmethods = ["supervised"]',
    ],
)
def test_a_recipe_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="recipe 'mine' cannot be read"):
        parse_recipe("mine", text)


def test_what_a_recipe_gets_wrong_is_said_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="margin"):
        grid(parse_recipe("mine", TEXT.replace("mu = 2", "margin = 1.0")))
    with pytest.raises(ConfigError, match=r"weights is a\\x00; give a path"):
        grid(parse_recipe("mine", TEXT.replace("mu = 2", r'weights = "a\u0000"')))
    with pytest.raises(ConfigError, match="digitz"):
        grid(parse_recipe("mine", TEXT.replace("datasets.digits", "datasets.digitz")))
    with pytest.raises(ConfigError, match="runs with the same name"):
        grid(parse_recipe("mine", TEXT + '[rows."a b"]\nmethod="supervised"\n[rows.a_b]\nmethod="supervised"'))


# --- scales -------------------------------------------------------------------------------------------------


def test_a_scale_shrinks_images_network_length_and_folds() -> None:
    grids = [grid(read_recipe("table1"), scale=scale) for scale in ("paper", "laptop", "tiny")]
    assert len(grids[0]) > len(grids[1]) > len(grids[2])
    steps = [cells[0].config.training.total_steps for cells in grids]
    assert steps == sorted(steps, reverse=True)
    assert [cells[0].config.data.image_size for cells in grids] == [None, 16, 8]
    assert [cells[0].config.network.network for cells in grids] == ["wrn-28-2", "wrn-10-2", "small"]


def test_lengths_keep_their_proportions() -> None:
    scale = Scale(steps=2000, mu=3, lengths={"cifar10": 3000})
    assert scaled(scale, benchmark("cifar10"), "supervised", {"epochs": 256})["steps"] == 2 * 3000
    assert scaled(scale, benchmark("stl10"), "supervised", {})["steps"] == 2000
    part = scaled(scale, benchmark("cifar100"), "supervised", {"stop_after": 31_620})
    assert part["stop_after"] == round(31_620 / 131_072 * 2000)


def test_a_scale_never_makes_anything_larger() -> None:
    assert "image_size" not in scaled(SCALES["laptop"], benchmark("digits"), "supervised", {})
    assert scaled(SCALES["laptop"], benchmark("digits"), "supervised", {"steps": 7})["steps"] == 7
    assert scaled(SCALES["paper"], benchmark("cifar10"), "supervised", {"epochs": 2}) == {"epochs": 2}


@pytest.mark.parametrize("scale", ["paper", "tiny"])
def test_a_given_length_replaces_that_of_recipe_and_scale(scale: str) -> None:
    recipe = parse_recipe("mine", TEXT)  # has epochs for one dataset, and the other has steps of its own
    assert {cell.config.training.total_steps for cell in grid(recipe, scale=scale, given={"steps": 7})} == {7}
    assert {cell.config.training.epochs for cell in grid(recipe, scale=scale, given={"epochs": 0.5})} == {0.5}
