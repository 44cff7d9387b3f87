"""Synthetic runs for tests of the report."""

from dataclasses import replace
from typing import Any

import numpy as np

from rankingmatch.core.metrics import Errors
from rankingmatch.report import Predictions, ReportInput, RunData, Status

HTML_NAME = "<img src=x onerror=alert(1)>"


def make_predictions(
    subset: str = "test", count: int = 60, classes: int = 3, side: int = 8, seed: int = 0
) -> Predictions:
    """Predictions that are mostly correct and confident, with features that cluster by class."""
    rng = np.random.default_rng(seed)
    truth = np.arange(count) % classes
    predicted = np.where(rng.random(count) < 0.8, truth, rng.integers(0, classes, count))
    logits = rng.normal(0, 1, (count, classes)) + 4 * np.eye(classes)[predicted]
    features = rng.normal(0, 1, (count, 16)) + 3 * rng.normal(0, 1, (classes, 16))[truth]
    images = (rng.integers(0, 60, (count, side, side, 3)) + 180 * truth[:, None, None, None] / classes).astype(np.uint8)
    return Predictions(subset, images, np.arange(count), truth, logits, features)


def make_history(evaluations: int = 5, classes: int = 3, **changed: Any) -> list[dict[str, Any]]:
    """Rows of a metrics.jsonl."""
    return [
        {
            "step": 10 * number,
            "seconds": 2.0 * number,
            "learning_rate": 0.1 / number,
            "images_per_second": 100.0,
            "confident": 0.1 * number,
            "purity": 0.9,
            "class_shares": [1 / classes] * classes,
            "loss_labeled_ce": 1.0 / number,
            "loss_total": 2.0 / number,
            "val_error": 50.0 / number,
            "test_error": 60.0 / number,
            "best": True,
            "step_seconds": 0.15,
            "memory": 2**20 * (100 + number),
            **changed,
        }
        for number in range(1, evaluations + 1)
    ]


def make_run(classes: int = 3, **changed: Any) -> RunData:
    """A finished run of this many classes, the first with a name that is HTML; `test_error` stands for `test`."""
    for part in ("test", "val"):
        if f"{part}_error" in changed:
            error = changed.pop(f"{part}_error")
            changed[part] = None if error is None else Errors(error)
    names = (HTML_NAME, *(f"class {number}" for number in range(1, classes)))
    run = RunData(
        name="rankingmatch-bm",
        dataset="made",
        method="rankingmatch-bm",
        labels=12,
        seed=0,
        classes=names,
        status=Status.FINISHED,
        steps=50,
        directory="made-12",
        command="rankingmatch train made --labels 12",
        environment={"torch": "2"},
        settings={"threshold": 0.95},
        history=make_history(classes=classes),
        evaluated=make_predictions(classes=classes, count=max(60, classes)),
        unlabeled=make_predictions("unlabeled", 150, classes=classes, seed=1),
        unlabeled_total=150,
        weights="the averaged weights of step 50, the last",
        threshold=0.95,
        test=Errors(12.0),
        val=Errors(10.0),
        seconds=10.0,
    )
    return replace(run, **changed)


def report_input(points: int | None = None, **changed: Any) -> ReportInput:
    """The input of a section: one run, whose predictions are shown."""
    return ReportInput([make_run(**changed)], [0], {}, points)


def without_truth(predictions: Predictions) -> Predictions:
    return replace(predictions, truth=np.full_like(predictions.truth, -1))
