"""Grids and tables."""

import statistics

import pytest

from rankingmatch.bench import Row, markdown_table
from rankingmatch.errors import ConfigError
from rankingmatch.recipe import Recipe, cells, parse_recipe, read_recipe, recipe_names
from rankingmatch.run import Result


def result(test_error: float | None, diverged_at: int | None = None) -> Result:
    return Result("digits", "m", 40, 0, 10, 2.0, test_error, None, diverged_at=diverged_at)


RECIPE = Recipe(
    "mine",
    "Mine",
    "digits",
    (20, 40),
    ("supervised", "fixmatch-ra"),
    folds=3,
    variations={"a": {}, "b": {"seed": 7}},
)


def test_a_grid_is_methods_by_variations_by_labels_by_folds() -> None:
    grid = cells(RECIPE, folds=3)
    assert len(grid) == 2 * 2 * 2 * 3
    assert len({cell.directory for cell in grid}) == len(grid)
    assert {cell.config.training.seed for cell in grid} == {0, 1, 2}
    assert {cell.config.data.labels for cell in grid} == {20, 40}


def test_every_recipe_that_comes_along_can_be_run() -> None:
    assert {"demo", "digits", "weak-pass"} <= set(recipe_names())
    for name in recipe_names():
        recipe = read_recipe(name)
        assert cells(recipe, recipe.folds)


@pytest.mark.parametrize(
    "text",
    [
        "title = ",
        'title = "x"',
        'title = "x"\ndataset = "digits"\nlabels = 40\nmethods = ["supervised"]',
        'title = "x"\ndataset = "digits"\nlabels = [40]\nmethods = ["supervised"]\ncolour = "red"',
        'title = 5\ndataset = "digits"\nlabels = [40]\nmethods = ["supervised"]',
        'title = "x"\ndataset = "digits"\nlabels = []\nmethods = ["supervised"]',
        'title = "x"\ndataset = "digits"\nlabels = [40]\nmethods = [1]',
        'title = "x"\ndataset = "digits"\nlabels = [40]\nmethods = ["supervised"]\nfolds = "five"',
        'title = "x"\ndataset = "digits"\nlabels = [40]\nmethods = ["supervised"]\nfolds = 0',
        'title = "x"\ndataset = "digits"\nlabels = [40]\nmethods = ["supervised"]\n[variations]\na = 3',
    ],
)
def test_a_recipe_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="recipe 'mine' cannot be read"):
        parse_recipe("mine", text)


def test_a_setting_unknown_to_a_recipes_methods_is_named_before_anything_runs() -> None:
    recipe = parse_recipe(
        "mine", 'title="x"\ndataset="digits"\nlabels=[40]\nmethods=["supervised"]\n[settings]\nmargin=1.0'
    )
    with pytest.raises(ConfigError, match="--margin is not used by the method 'supervised'"):
        cells(recipe, 1)


def test_variations_that_would_share_a_directory_are_refused() -> None:
    recipe = Recipe("mine", "Mine", "digits", (40,), ("supervised",), variations={"a b": {}, "a_b": {"mu": 1}})
    with pytest.raises(ConfigError, match="cannot be told apart"):
        cells(recipe, 1)


def test_a_method_that_diverged_in_a_fold_is_never_the_best() -> None:
    sick = Row("sick", "", 40, (result(1.0), result(None, diverged_at=70)))
    well = Row("well", "", 40, (result(3.0), result(3.5)))
    lines = markdown_table(RECIPE, [sick, well]).splitlines()
    assert "**" not in lines[4]
    assert "**3.25 ± 0.35**" in lines[5]


def test_a_row_has_mean_and_standard_deviation() -> None:
    row = Row("m", "", 40, (result(2.0), result(4.0), result(6.0)))
    assert row.error_text() == f"4.00 ± {statistics.stdev([2, 4, 6]):.2f}"
    assert Row("m", "", 40, (result(2.0),)).error_text() == "2.00"


def test_a_diverged_run_is_written_as_the_paper_does() -> None:
    assert Row("m", "", 40, (result(2.0), result(None, diverged_at=70))).error_text() == "NaN-70"


def test_the_markdown_table_sets_the_best_in_bold() -> None:
    rows = [Row("worse", "", 40, (result(5.0), result(7.0))), Row("better", "", 40, (result(1.0), result(2.0)))]
    lines = markdown_table(RECIPE, rows).splitlines()
    assert (
        lines[2]
        == "| method | labels | folds | test error % | seconds | validation error % | test error of each fold |"
    )
    assert lines[4] == "| worse | 40 | 2 | 6.00 ± 1.41 | 2 | – | 5.00, 7.00 |"
    assert lines[5] == "| better | 40 | 2 | **1.50 ± 0.71** | 2 | – | 1.00, 2.00 |"
