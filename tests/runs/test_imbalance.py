"""Unbalanced classes in a run: what its files record, what is warned of, and what the tables show."""

import logging
from pathlib import Path
from typing import Any

import pytest
from image_folders import picture

import rankingmatch as rm
from rankingmatch.bench.recipe import cells, parse_recipe, read_recipe
from rankingmatch.bench.results import KeptRun, Outcome, markdown_page
from rankingmatch.core.errors import ConfigError
from rankingmatch.core.metrics import Errors, confusion_matrix
from rankingmatch.data import make_split
from rankingmatch.methods.rebalancing import REMEDIES
from rankingmatch.networks import predict_logits
from rankingmatch.runs.config import resolve
from rankingmatch.runs.directory import Run
from rankingmatch.runs.evaluate import evaluate
from rankingmatch.runs.job import load_dataset, load_split, warn_of_unbalanced_labels
from rankingmatch.runs.result import Result

GIVEN: dict[str, Any] = {"labels": 98, "imbalance": 20, "steps": 2, "batch_size": 8, "mu": 1, "threads": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("imbalance") / "run"
    return rm.train("digits", method="fixmatch-ra", rebalance="abc", out=out, report=True, **GIVEN)


def test_the_result_has_balanced_errors_and_recalls_of_the_saved_model(run: Run) -> None:
    result, config = run.result(), run.config()
    assert result is not None
    test = load_dataset(resolve(config.dataset, config.method, {})).test
    assert test is not None
    model, _ = run.load_model(config.device())
    predicted = predict_logits(model, test.images, config.device()).argmax(1)
    confusion = confusion_matrix(test.labels, predicted, 10)
    errors = Errors.of(confusion)
    assert (result.test_balanced_error, result.test_recall) == (errors.balanced_error, errors.recall)
    assert result.val_balanced_error is not None
    last = run.history()[-1]
    assert last["test_recall"] == result.test_recall
    assert last["val_balanced_error"] == result.val_balanced_error
    evaluation = evaluate(run, None)
    assert evaluation["test_balanced_error"] == pytest.approx(result.test_balanced_error)
    assert evaluation["test_recall"] == pytest.approx(result.test_recall)


def test_the_split_of_a_run_can_be_used_again(run: Run) -> None:
    config = run.config()
    dataset = load_dataset(resolve("digits", "fixmatch-ra", {}))
    first = make_split(dataset, config.data, config.training.seed)
    plan = resolve("digits", "fixmatch-ra", {"split": str(run.path / "split.json"), "seed": 7})
    again = load_split(plan)
    assert (again.labels == first.labels).all()
    assert (again.unlabeled_rows == first.unlabeled_rows).all()
    with pytest.raises(ConfigError, match="split determines imbalance"):
        rm.train("digits", split=str(run.path / "split.json"), imbalance=3.0, out=run.path / "other")


@pytest.mark.parametrize(
    ("method", "given", "told"),
    [
        ("fixmatch-ra", {}, "'i' has 1, 'a' has 5; the option rebalance"),
        ("supervised", {}, "'i' has 1, 'a' has 5; the option balanced draws"),
        ("fixmatch-ra", {"balanced": True}, None),
        ("fixmatch-ra", {"rebalance": "abc"}, None),
    ],
)
def test_unbalanced_labels_are_told_with_the_option_that_helps(
    method: str, given: dict[str, Any], told: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, name in enumerate("aaaaabbi"):
        picture(tmp_path / f"labeled/{name}/{number}.png", (number, 0, 0), (9, 9))
    picture(tmp_path / "unlabeled/x.png", (99, 0, 0), (9, 9))
    with caplog.at_level(logging.WARNING):
        plan = resolve(str(tmp_path), method, {"validation": 0, **given})
        warn_of_unbalanced_labels(load_split(plan), plan.config)
    found = [message for message in caplog.messages if "unbalanced" in message]
    assert len(found) == (told is not None)
    assert all(str(told) in message and "\n" not in message for message in found)


# --- recipes ------------------------------------------------------------------------------------------------

RECIPE = """
title = "Mine"
methods = ["supervised"]
folds = 2
[rows.remedy]
method = "fixmatch-ra"
rebalance = "abc"
[datasets.digits]
labels = [98]
imbalance = 20
"""


def test_a_recipe_with_unbalanced_classes_has_a_table_of_balanced_errors() -> None:
    recipe = parse_recipe("mine", RECIPE)
    grid = cells(recipe, folds=None, scale=None, given={})
    runs = {}
    for index, cell in enumerate(grid):
        test = Errors(10.0 + cell.fold, 30.0 + index, [100.0, 50.0, None])
        result = Result("digits", cell.row.method, 98, cell.fold, 2, 1.0, test)
        runs[cell.directory] = KeptRun("", "", "", {}, result, [])
    outcome = Outcome(recipe, "paper", grid, runs)
    errors, balanced = outcome.tables
    assert (errors.quantity, balanced.quantity) == ("test error %", "balanced test error %")
    assert [str(row.figures[0]) for row in errors.rows] == ["10.50 ± 0.71", "10.50 ± 0.71"]
    assert [str(row.figures[0]) for row in balanced.rows] == ["31.00 ± 1.41", "32.00 ± 1.41"]
    assert "| 100, 50, – |" in markdown_page([outcome], "command")


def test_the_included_recipe_has_every_remedy() -> None:
    rows = {row.settings.get("rebalance", "none") for row in read_recipe("digits-longtail").rows}
    assert rows == set(REMEDIES)
