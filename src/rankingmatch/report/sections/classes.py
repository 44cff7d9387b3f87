"""Classes: confusion matrix, calibration, error by class, and the most confident mistakes."""

from typing import TypedDict

import numpy as np

from rankingmatch.report.run_data import CalibrationBin, Predictions, prediction_metrics
from rankingmatch.report.sections import OfRun, ReportInput, Section, Sprite

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


class ClassesOfRun(OfRun):
    """What is shown of one run."""

    images: int
    balanced_error: float | None  # mean over the classes
    calibration_error: float
    confusion: list[list[int]]
    classes: list[ClassRow]
    calibration: list[CalibrationBin]
    mistakes: list[Mistake]
    mistake_count: int


def classes_data(report: ReportInput) -> list[ClassesOfRun]:
    """Confusion, calibration and mistakes of each detailed run that has a model and labels."""
    return [
        {
            **of_run,
            "images": metrics.estimate["images"],
            "balanced_error": metrics.estimate["balanced_error"],
            "calibration_error": metrics.estimate["calibration_error"],
            "confusion": metrics.confusion.tolist(),
            "classes": class_rows(metrics.confusion),
            "calibration": metrics.calibration,
            "mistakes": most_confident_mistakes(predictions, sprite),
            "mistake_count": int(metrics.wrong.sum()),
        }
        for of_run, predictions, sprite in report.predictions()
        if (metrics := prediction_metrics(predictions))
    ]


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
    predicted, confidence = chosen.predicted, chosen.confidence
    return [
        {
            "thumbnail": thumbnail,
            "row": int(chosen.rows[index]),
            "truth": int(chosen.truth[index]),
            "predicted": int(predicted[index]),
            "confidence": round(float(confidence[index]), 4),
        }
        for index, thumbnail in enumerate(sprite.add(chosen.rows, chosen.images))
    ]


SECTION = Section("classes", "Classes", classes_data)
