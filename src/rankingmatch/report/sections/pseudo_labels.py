"""Pseudo-labels: what a model predicts for the unlabeled images."""

from typing import TypedDict

import numpy as np

from rankingmatch.report.run_data import Predictions, RunData
from rankingmatch.report.section import ReportInput, Section
from rankingmatch.report.thumbnails import Sprite

THUMBNAILS = 1500  # of unlabeled images, over all runs


class PseudoLabelsOfRun(TypedDict):
    """What is shown of one run; lists have one entry for each image."""

    run: int
    sprite: str
    total: int  # unlabeled images of the dataset, of which these may be a sample
    threshold: float | None  # confidence threshold of the method
    rows: list[int]
    predicted: list[int]
    confidence: list[float]
    truth: list[int]  # -1 where unknown
    thumbnails: list[int]  # -1 for images without a thumbnail on the page


class PseudoLabelsData(TypedDict):
    """What pseudo_labels.js draws; without runs that have no model or no unlabeled images."""

    runs: list[PseudoLabelsOfRun]


def pseudo_labels_data(report: ReportInput) -> PseudoLabelsData:
    """The pseudo-labels of each detailed run."""
    thumbnails = THUMBNAILS // max(1, len(report.detailed))
    runs = []
    for index, run in report.detailed_runs():
        if run.unlabeled is not None and len(run.unlabeled):
            runs.append(pseudo_labels_of_run(index, run, run.unlabeled, *report.sprite(run, run.unlabeled), thumbnails))
    return {"runs": runs}


def pseudo_labels_of_run(
    index: int, run: RunData, unlabeled: Predictions, key: str, sprite: Sprite, thumbnails: int
) -> PseudoLabelsOfRun:
    """Pseudo-label, confidence and true label of each image, and at most so many thumbnails."""
    gallery = select_gallery(unlabeled.predicted, unlabeled.confidence, unlabeled.wrong, thumbnails)
    indices = np.full(len(unlabeled), -1)
    indices[gallery] = sprite.add_all(unlabeled.rows[gallery], unlabeled.images[gallery])
    return {
        "run": index,
        "sprite": key,
        "total": run.unlabeled_total,
        "threshold": run.threshold,
        "rows": unlabeled.rows.tolist(),
        "predicted": unlabeled.predicted.tolist(),
        "confidence": np.round(unlabeled.confidence, 4).tolist(),
        "truth": unlabeled.truth.tolist(),
        "thumbnails": indices.tolist(),
    }


def select_gallery(predicted: np.ndarray, confidence: np.ndarray, wrong: np.ndarray, largest: int) -> np.ndarray:
    """Indices of at most `largest` images: each class's most confident mistakes, and others across all confidences."""
    if len(predicted) <= largest:
        return np.arange(len(predicted))
    labels = np.unique(predicted)
    share = max(1, largest // len(labels))
    chosen: list[int] = []
    for label in labels:
        of_class = np.flatnonzero(predicted == label)
        of_class = of_class[np.argsort(-confidence[of_class], kind="stable")]
        mistakes = of_class[wrong[of_class]][: share // 2]
        others = np.setdiff1d(of_class, mistakes, assume_unique=True)
        others = others[np.argsort(-confidence[others], kind="stable")]
        count = min(len(others), share - len(mistakes))
        spread = np.linspace(0, len(others) - 1, count).round().astype(int) if count else np.empty(0, int)
        chosen.extend([*mistakes, *others[np.unique(spread)]])
    return np.sort(np.array(chosen, int))[:largest]


SECTION = Section("pseudo_labels", "Pseudo-labels", pseudo_labels_data)
