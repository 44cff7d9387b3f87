"""Pseudo-labels: what a model predicts for the unlabeled images."""

import numpy as np

from rankingmatch.report.run_data import Predictions
from rankingmatch.report.sections import OfRun, ReportInput, Section

THUMBNAILS = 1500  # of unlabeled images, over all runs


class PseudoLabelsOfRun(OfRun):
    """What is shown of one run; lists have one entry for each image."""

    total: int  # unlabeled images of the dataset, of which these may be a sample
    threshold: float | None  # confidence threshold of the method
    rows: list[int]
    predicted: list[int]
    confidence: list[float]
    truth: list[int]  # -1 where unknown
    thumbnails: list[int]  # -1 for images without a thumbnail on the page


def pseudo_labels_data(report: ReportInput) -> list[PseudoLabelsOfRun]:
    """The pseudo-labels of each detailed run that has a model and unlabeled images."""
    runs: list[PseudoLabelsOfRun] = []
    for of_run, unlabeled, sprite in report.predictions(unlabeled=True):
        gallery = select_gallery(unlabeled, THUMBNAILS // max(1, len(report.detailed)))
        thumbnails = np.full(len(unlabeled), -1)
        thumbnails[gallery] = sprite.add(unlabeled.rows[gallery], unlabeled.images[gallery])
        run = report.runs[of_run["run"]]
        runs.append(
            {
                **of_run,
                "total": run.unlabeled_total,
                "threshold": run.threshold,
                "rows": unlabeled.rows.tolist(),
                "predicted": unlabeled.predicted.tolist(),
                "confidence": np.round(unlabeled.confidence, 4).tolist(),
                "truth": unlabeled.truth.tolist(),
                "thumbnails": thumbnails.tolist(),
            }
        )
    return runs


def select_gallery(predictions: Predictions, largest: int) -> np.ndarray:
    """Indices of at most `largest` images: each class's most confident mistakes, and others across all confidences."""
    if len(predictions) <= largest:
        return np.arange(len(predictions))
    predicted, wrong = predictions.predicted, predictions.wrong
    order = np.argsort(-predictions.confidence, kind="stable")
    labels = np.unique(predicted)
    share = max(1, largest // len(labels))
    chosen: list[int] = []
    for label in labels:
        of_class = order[predicted[order] == label]
        mistakes = of_class[wrong[of_class]][: share // 2]
        others = of_class[~np.isin(of_class, mistakes)]
        count = min(len(others), share - len(mistakes))
        spread = np.linspace(0, len(others) - 1, count).round().astype(int) if count else np.empty(0, int)
        chosen.extend([*mistakes, *others[np.unique(spread)]])
    return np.sort(np.array(chosen, int))[:largest]


SECTION = Section("pseudo_labels", "Pseudo-labels", pseudo_labels_data)
