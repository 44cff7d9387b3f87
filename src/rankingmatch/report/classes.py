"""Which classes a model confuses, how far its confidence can be trusted, and what it was surest of and wrong."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankingmatch.core.metrics import calibration_error, confusion_matrix, error_rate
from rankingmatch.report.sheet import Sheet
from rankingmatch.report.statistics import wilson_interval
from rankingmatch.report.subject import Outputs

BINS = 15
MISTAKES = 60  # thumbnails of mistakes


@dataclass(frozen=True)
class Judgement:
    """How predictions agree with what is known; errors in percent."""

    count: int
    error: float
    interval: tuple[float, float]
    calibration_error: float
    confusion: np.ndarray
    wrong: np.ndarray  # (count,) of bool
    bins: list[dict[str, float]]  # of calibration, those with images in them


def judge(outputs: Outputs) -> Judgement | None:
    """The judgement of outputs; None where no truth is known."""
    known = outputs.take(np.flatnonzero(outputs.known))
    if not len(known):
        return None
    predicted, confidence = known.predicted, known.confidence
    wrong = predicted != known.truth
    confusion = confusion_matrix(known.truth, predicted, known.logits.shape[1])
    return Judgement(
        count=len(known),
        error=error_rate(confusion),
        interval=wilson_interval(int(wrong.sum()), len(known)),
        calibration_error=calibration_error(confidence, ~wrong, BINS),
        confusion=confusion,
        wrong=wrong,
        bins=calibration_bins(confidence, ~wrong),
    )


def calibration_bins(confidence: np.ndarray, correct: np.ndarray) -> list[dict[str, float]]:
    """Mean confidence, accuracy and number of images of each bin that has any."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = []
    for number in np.unique(place):
        here = place == number
        bins.append(
            {
                "confidence": round(float(confidence[here].mean()), 4),
                "accuracy": round(float(correct[here].mean()), 4),
                "count": int(here.sum()),
            }
        )
    return bins


def class_rows(confusion: np.ndarray) -> list[dict[str, Any]]:
    """For each class: images, error, precision in percent, and the classes that it is most often taken for."""
    rows = []
    for label, counts in enumerate(confusion):
        images, claimed, right = int(counts.sum()), int(confusion[:, label].sum()), int(counts[label])
        others = [int(other) for other in np.argsort(-counts, kind="stable") if other != label and counts[other]]
        rows.append(
            {
                "label": label,
                "images": images,
                "error": round(100 * (1 - right / images), 2) if images else None,
                "precision": round(100 * right / claimed, 2) if claimed else None,
                "taken": [[other, int(counts[other])] for other in others[:3]],
            }
        )
    return rows


def surest_mistakes(outputs: Outputs, sheet: Sheet) -> list[dict[str, Any]]:
    """The wrong predictions with the highest confidence, surest first, with their places on a sheet."""
    wrong = np.flatnonzero(outputs.known & (outputs.predicted != outputs.truth))
    confidence = outputs.confidence
    chosen = wrong[np.argsort(-confidence[wrong], kind="stable")][:MISTAKES]
    return [
        {
            "place": sheet.place(int(outputs.rows[i]), outputs.images[i]),
            "row": int(outputs.rows[i]),
            "truth": int(outputs.truth[i]),
            "predicted": int(outputs.predicted[i]),
            "confidence": round(float(confidence[i]), 4),
        }
        for i in chosen
    ]


def classes_section(outputs: Outputs, sheet: Sheet) -> dict[str, Any] | None:
    """Confusion, classes, calibration and mistakes as plain values; None where no truth is known."""
    judgement = judge(outputs)
    if judgement is None:
        return None
    return {
        "part": outputs.part,
        "images": judgement.count,
        "error": judgement.error,
        "interval": judgement.interval,
        "calibrationError": judgement.calibration_error,
        "confusion": judgement.confusion.tolist(),
        "rows": class_rows(judgement.confusion),
        "calibration": judgement.bins,
        "mistakes": surest_mistakes(outputs, sheet),
        "mistakeCount": int(judgement.wrong.sum()),
    }
