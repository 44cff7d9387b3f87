"""The audit of pseudo-labels: what a model believes of the unlabeled images."""

from typing import Any

import numpy as np

from rankingmatch.report.sheet import Sheet
from rankingmatch.report.subject import Outputs


def chosen_for_gallery(predicted: np.ndarray, confidence: np.ndarray, wrong: np.ndarray, most: int) -> np.ndarray:
    """Places of at most `most` images: of each class the surest mistakes, then others evenly from sure to unsure."""
    if len(predicted) <= most:
        return np.arange(len(predicted))
    labels = np.unique(predicted)
    share = max(1, most // len(labels))
    chosen: list[int] = []
    for label in labels:
        here = np.flatnonzero(predicted == label)
        here = here[np.argsort(-confidence[here], kind="stable")]
        mistakes = here[wrong[here]][: share // 2]
        others = np.setdiff1d(here, mistakes, assume_unique=True)
        others = others[np.argsort(-confidence[others], kind="stable")]
        left = min(len(others), share - len(mistakes))
        spread = np.linspace(0, len(others) - 1, left).round().astype(int) if left else np.empty(0, int)
        chosen.extend([*mistakes, *others[np.unique(spread)]])
    return np.sort(np.array(chosen, int))[:most]


def audit_section(
    outputs: Outputs, sheet: Sheet, total: int, threshold: float | None, most: int
) -> dict[str, Any] | None:
    """Pseudo-label, confidence and truth of each image, and the place of those that are shown."""
    if not len(outputs):
        return None
    predicted, confidence = outputs.predicted, outputs.confidence
    wrong = outputs.known & (predicted != outputs.truth)
    gallery = chosen_for_gallery(predicted, confidence, wrong, most)
    places = np.full(len(outputs), -1)
    places[gallery] = sheet.places(outputs.rows[gallery], outputs.images[gallery])
    return {
        "total": total,
        "threshold": threshold,
        "rows": outputs.rows.tolist(),
        "predicted": predicted.tolist(),
        "confidence": np.round(confidence, 4).tolist(),
        "truth": outputs.truth.tolist(),
        "places": places.tolist(),
    }
