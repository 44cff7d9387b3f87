"""Classes: confusion matrix, calibration, error by class, and the most confident mistakes."""

from typing import TypedDict

import numpy as np

from rankingmatch.report.run_data import CalibrationBin, Predictions, prediction_metrics
from rankingmatch.report.sections import ReportInput, Section, Sprite

MISTAKES = 60  # thumbnails of mistakes


class ClassRow(TypedDict):
    """One class in the table; percentages are None where there is nothing to divide by."""

    label: int
    images: int
    error: float | None
    recall: float | None
    precision: float | None
    confused_with: list[tuple[int, int]]  # (class, images): the most frequent wrong predictions


class Mistake(TypedDict):
    """A wrong prediction."""

    thumbnail: int
    row: int
    truth: int
    predicted: int
    confidence: float


class ClassesOfRun(TypedDict):
    """What is shown of one run."""

    run: int
    subset: str
    sprite: str
    images: int
    balanced_error: float | None  # mean over the classes
    calibration_error: float
    confusion: list[list[int]]
    classes: list[ClassRow]
    calibration: list[CalibrationBin]
    mistakes: list[Mistake]
    mistake_count: int


class ClassesData(TypedDict):
    """What classes.js draws; without runs that have no model or no labels."""

    runs: list[ClassesOfRun]


def classes_data(report: ReportInput) -> ClassesData:
    """Confusion, calibration and mistakes of each detailed run whose labels are known."""
    runs: list[ClassesOfRun] = []
    for index, predictions, key, sprite in report.evaluated():
        metrics = prediction_metrics(predictions)
        if metrics is None:
            continue
        runs.append(
            {
                "run": index,
                "subset": predictions.subset,
                "sprite": key,
                "images": metrics.estimate["images"],
                "balanced_error": metrics.estimate["balanced_error"],
                "calibration_error": metrics.estimate["calibration_error"],
                "confusion": metrics.confusion.tolist(),
                "classes": class_rows(metrics.confusion),
                "calibration": metrics.calibration,
                "mistakes": most_confident_mistakes(predictions, sprite),
                "mistake_count": int(metrics.wrong.sum()),
            }
        )
    return {"runs": runs}


def class_rows(confusion: np.ndarray) -> list[ClassRow]:
    """A row for each class: images, error, recall, precision (in percent), and what it is most often confused with."""
    rows: list[ClassRow] = []
    for label, counts in enumerate(confusion):
        images, predicted, correct = int(counts.sum()), int(confusion[:, label].sum()), int(counts[label])
        others = [int(other) for other in np.argsort(-counts, kind="stable") if other != label and counts[other]]
        rows.append(
            {
                "label": label,
                "images": images,
                "error": round(100 * (1 - correct / images), 2) if images else None,
                "recall": round(100 * correct / images, 2) if images else None,
                "precision": round(100 * correct / predicted, 2) if predicted else None,
                "confused_with": [(other, int(counts[other])) for other in others[:3]],
            }
        )
    return rows


def most_confident_mistakes(predictions: Predictions, sprite: Sprite) -> list[Mistake]:
    """The wrong predictions with the highest confidence, in descending order."""
    wrong = np.flatnonzero(predictions.wrong)
    chosen = predictions.take(wrong[np.argsort(-predictions.confidence[wrong], kind="stable")][:MISTAKES])
    columns = (
        sprite.add(chosen.rows, chosen.images),
        chosen.rows.tolist(),
        chosen.truth.tolist(),
        chosen.predicted.tolist(),
        [round(value, 4) for value in chosen.confidence.tolist()],
    )
    return [
        {"thumbnail": thumbnail, "row": row, "truth": truth, "predicted": predicted, "confidence": confidence}
        for thumbnail, row, truth, predicted, confidence in zip(*columns, strict=True)
    ]


SECTION = Section("classes", "Classes", classes_data)
