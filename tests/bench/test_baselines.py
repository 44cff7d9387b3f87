"""Baselines on frozen features: the same splits as the runs beside them, in the same tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_folders import class_folders
from sklearn.linear_model import LogisticRegression

from rankingmatch.bench import OutputFiles, baselines, parse_recipe, read_recipe, run_recipe
from rankingmatch.bench.baselines import BASELINES, errors_of, frozen_features, make_baseline
from rankingmatch.bench.curves import errors_by_labels
from rankingmatch.bench.recipe import cells
from rankingmatch.bench.results import markdown_page
from rankingmatch.core.errors import ConfigError
from rankingmatch.data import Dataset, Images, Split, assemble_split
from rankingmatch.networks import make_classifier, predict_logits_and_features
from rankingmatch.runs.config import resolve
from rankingmatch.runs.job import load_split

RECIPE = """
title = "Mine"
methods = ["logistic-regression", "label-spreading", "self-training", "supervised"]
folds = 1
[datasets."DATA"]
labels = [3, 6]
[settings]
pretrained = true
steps = 2
batch_size = 4
bank_views = 1
threads = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes: 6 training and 2 test images each."""
    root = tmp_path_factory.mktemp("photos")
    for part, each in (("train", 6), ("test", 2)):
        class_folders(root / part, each=each, size=(64, 64))
    return root


def clusters(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features (count, 8) around three centers, far from the origin, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    return 10 + 3 * np.eye(3, 8)[labels] + rng.normal(size=(count, 8)), labels


def split_of(labels: np.ndarray, test: np.ndarray, labeled: int) -> Split:
    def images(of: np.ndarray) -> Images:
        return Images(np.zeros((len(of), 2, 2, 3), np.uint8), of)

    dataset = Dataset(("a", "b", "c"), images(labels), None, images(test))
    return assemble_split(dataset, np.arange(labeled), np.arange(len(labels) - 30, len(labels)))


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_learn_and_one_label_of_each_class_is_enough(name: str) -> None:
    (train, labels), (test, truth) = clusters(330), clusters(60, seed=1)
    errors = {}
    for labeled in (3, 150):
        split = split_of(labels, truth, labeled)
        validation, tested = errors_of(name, split, (train, None, test))
        assert validation is not None
        assert tested is not None
        errors[labeled] = tested.error
    assert errors[150] < 15
    assert errors[3] < 50


def test_logistic_regression_sees_the_labels_of_the_split_and_no_validation_image() -> None:
    (train, labels), (test, truth) = clusters(330), clusters(60, seed=1)
    split = split_of(labels, truth, 12)
    mean = train[:300].mean(0)

    def unit(rows: np.ndarray) -> Any:
        return (rows - mean) / np.linalg.norm(rows - mean, axis=1, keepdims=True)

    strength = make_baseline("logistic-regression").C
    expected = LogisticRegression(C=strength, max_iter=1000).fit(unit(train[:12]), labels[:12])
    errors = errors_of("logistic-regression", split, (train, None, test))
    for found, part, right in zip(errors, (train[300:], test), (labels[300:], truth), strict=True):
        assert found is not None
        assert found.error == pytest.approx(100 * np.mean(expected.predict(unit(part)) != right))


def test_features_are_those_that_the_head_takes(folder: Path) -> None:
    plan = resolve(str(folder), "supervised", {"labels": 3})
    split = load_split(plan)
    train, validation, test = frozen_features(
        plan.source.load(crop=True, image_size=plan.config.data.image_size), plan.config
    )
    model = make_classifier("efficientnet-lite2", 3, pretrained=True)
    _, expected = predict_logits_and_features(model, split.images, plan.config.device())
    assert expected is not None
    np.testing.assert_allclose(train, expected, atol=1e-4)
    assert test is not None
    assert test.shape == (6, 1280)
    assert validation is None


def test_baselines_are_rows_beside_methods(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = parse_recipe("mine", RECIPE, str(folder))
    outcome = run_recipe(recipe, out=tmp_path / "out")
    (table,) = outcome.tables
    assert [row.name for row in table.rows] == [row.name for row in recipe.rows]
    assert all(figure is not None and len(figure.values) == 1 for row in table.rows for figure in row.figures)
    for cell, run in ((cell, outcome.runs[cell.directory]) for cell in outcome.grid):
        assert (run.result.method, run.result.labels) == (cell.row.method, cell.column.labels)
        beside = outcome.of("supervised", cell.column.title)[cell.fold]
        labeled = [json.loads((outcome.directory / one.run / "split.json").read_text()) for one in (run, beside)]
        assert labeled[0] == labeled[1]
    page = markdown_page([outcome], "command")
    assert "| label-spreading |" in page
    OutputFiles(figures=tmp_path / "figures").write([outcome], "command")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"mine.svg", "mine.png"}
    svg = (tmp_path / "figures/mine.svg").read_text()
    (errors,) = errors_by_labels(outcome).values()
    assert list(errors) == [row.name for row in recipe.rows]
    assert list(errors["supervised"]) == [3, 6]
    assert "labeled images" in svg
    monkeypatch.setattr(baselines, "errors_of", lambda *_: pytest.fail("computed again"))
    assert run_recipe(recipe, out=tmp_path / "out").runs == outcome.runs
    (outcome.directory / outcome.grid[0].directory / "result.json").unlink()
    with pytest.raises(pytest.fail.Exception, match="computed again"):
        run_recipe(recipe, out=tmp_path / "out")


def test_a_recipe_for_photographs_takes_any_folder_or_dataset_of_color_images(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"logistic-regression .* pretrained"):
        cells(parse_recipe("mine", RECIPE, str(folder)), folds=1, scale=None, given={"pretrained": False})
    grid = cells(read_recipe("photos", str(folder)), folds=1, scale=None, given={})
    assert {cell.column.labels for cell in grid} == {10, 20, 40, 100, 200, 400}
    assert {cell.config.network.network for cell in grid} == {"efficientnet-lite0"}
    assert {cell.config.data.image_size for cell in grid} == {224}
    grid = cells(read_recipe("photos-stl10"), folds=1, scale=None, given={})
    assert {(cell.config.dataset, cell.config.network.tune) for cell in grid} == {("stl10", "top")}
    with pytest.raises(ConfigError, match="nowhere/photos"):
        cells(read_recipe("photos", "nowhere/photos"), folds=1, scale=None, given={})
    with pytest.raises(ConfigError, match="data "):
        read_recipe("table1", str(folder))
