"""Runs made of numbers alone, for the report, which knows no others."""

from dataclasses import replace
from typing import Any

import numpy as np

from rankingmatch.report import Outputs, Status, Subject

NASTY = "<img src=x onerror=alert(1)>"


def made_outputs(part: str = "test", count: int = 60, classes: int = 3, side: int = 8, seed: int = 0) -> Outputs:
    """Outputs that are right for most images and sure of most, with features around their class."""
    rng = np.random.default_rng(seed)
    truth = np.arange(count) % classes
    believed = np.where(rng.random(count) < 0.8, truth, rng.integers(0, classes, count))
    logits = rng.normal(0, 1, (count, classes)) + 4 * np.eye(classes)[believed]
    features = rng.normal(0, 1, (count, 16)) + 3 * rng.normal(0, 1, (classes, 16))[truth]
    images = (rng.integers(0, 60, (count, side, side, 3)) + 180 * truth[:, None, None, None] / classes).astype(np.uint8)
    return Outputs(part, images, np.arange(count), truth, logits, features)


def made_history(evaluations: int = 5, classes: int = 3, **changed: Any) -> list[dict[str, Any]]:
    """Lines of a metrics.jsonl."""
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


def made_subject(classes: int = 3, **changed: Any) -> Subject:
    """A finished run of `classes` classes, the first with a name that wants to be HTML."""
    names = (NASTY, *(f"class {number}" for number in range(1, classes)))
    subject = Subject(
        name="rankingmatch-bm",
        dataset="made",
        method="rankingmatch-bm",
        labels=12,
        seed=0,
        classes=names,
        status=Status.FINISHED,
        steps=50,
        place="made-12",
        command="rankingmatch train made --labels 12",
        environment={"torch": "2"},
        settings={"threshold": 0.95},
        history=made_history(classes=classes),
        judged=made_outputs(classes=classes, count=max(60, classes)),
        unlabeled=made_outputs("unlabeled", 150, classes=classes, seed=1),
        unlabeled_total=150,
        weights="the averaged weights of step 50, the last",
        threshold=0.95,
        test_error=12.0,
        val_error=10.0,
        seconds=10.0,
    )
    return replace(subject, **changed)


def without_truth(outputs: Outputs) -> Outputs:
    return replace(outputs, truth=np.full_like(outputs.truth, -1))
