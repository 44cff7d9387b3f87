"""A model that learns from the labels so far: predictions for all pictures, what to label next, and its error."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rankingmatch.heads.linear import fit_head
from rankingmatch.labeling import audit, selection
from rankingmatch.labeling.guesses import Guesses
from rankingmatch.labeling.out_of_fold import out_of_fold

__all__ = ["Lesson", "curve_of", "doubts_of", "guesses_of", "learn", "quality_of", "ranking_of"]

RANKED = 64  # pictures that are ordered at once
FEWEST = 2  # labels of each of two classes
CURVE_STEPS = (8, 4, 2)  # an eighth, a quarter and half of the labels


class Lesson(NamedTuple):
    """What there is to learn from.

    Attributes
    ----------
    numbers
        Picture numbers (m,) of the rows.
    features
        (m, d).
    labels
        Class ids (m,) for training; −1 for pictures without a label, −2 for those that must not be chosen.
    audited
        Class ids (m,) of audit pictures, −1 for all others.
    order
        Rows of the labels for training, the oldest first.
    known
        Whether the features of a row are known, (m,); otherwise they are zero, and the label is negative.
    """

    numbers: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    audited: np.ndarray
    order: np.ndarray
    known: np.ndarray

    @property
    def class_ids(self) -> np.ndarray:
        """The ids of the classes with labels for training, ascending."""
        return np.unique(self.labels[self.labels >= 0])

    @property
    def is_enough(self) -> bool:
        """Whether there are enough labels to train a head."""
        counts = np.unique(self.labels[self.labels >= 0], return_counts=True)[1]
        return int((counts >= FEWEST).sum()) >= 2


def learn(lesson: Lesson, seed: int, method: str, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (m, classes) of a head that is trained on all labels, or on those of some rows, and class ids."""
    labels = lesson.labels if rows is None else _labels_of(lesson, rows)
    class_ids = np.unique(labels[labels >= 0])
    head = fit_head(lesson.features, _compact(labels, class_ids), len(class_ids), seed, method)
    return head.probabilities(lesson.features), class_ids


def guesses_of(lesson: Lesson, probabilities: np.ndarray, class_ids: np.ndarray) -> Guesses:
    """The most probable class of every picture with features."""
    rows = np.flatnonzero(lesson.known)
    rows = rows[np.argsort(lesson.numbers[rows])]
    return Guesses(lesson.numbers[rows], class_ids[probabilities[rows].argmax(1)], probabilities[rows].max(1))


def ranking_of(lesson: Lesson, probabilities: np.ndarray | None, seed: int) -> list[tuple[int, str]]:
    """The pictures to label next, with the reasons."""
    labels = _compact(lesson.labels, lesson.class_ids)
    choices = selection.next_pictures(lesson.features, labels, probabilities, RANKED, seed)
    return [(int(lesson.numbers[choice.number]), choice.reason.value) for choice in choices]


def doubts_of(lesson: Lesson, class_ids: np.ndarray, seed: int) -> tuple[tuple[int, int, float], ...]:
    """Labels that a model contradicts which was trained without them: number, class id and confidence.

    Audit pictures are not among them: if only those that the model contradicts were corrected, its error would look
    lower than it is.
    """
    rows = np.flatnonzero(lesson.labels >= 0)
    predicted = out_of_fold(lesson.features, _compact(lesson.labels, class_ids), len(class_ids), seed)
    best, confidence = class_ids[predicted.argmax(1)], predicted.max(1)
    wrong = np.flatnonzero(best != lesson.labels[rows])
    wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
    return tuple((int(lesson.numbers[rows[at]]), int(best[at]), float(confidence[at])) for at in wrong)


def curve_of(lesson: Lesson, seed: int, method: str) -> list[dict[str, float]]:
    """The error with an eighth, a quarter and half of the labels, in the order in which they were given."""
    curve = []
    for divisor in CURVE_STEPS:
        rows = lesson.order[: len(lesson.order) // divisor]
        if lesson._replace(labels=_labels_of(lesson, rows)).is_enough and (lesson.audited >= 0).any():
            curve.append(_point(lesson, *learn(lesson, seed, method, rows), len(rows)))
    return curve


def quality_of(
    lesson: Lesson, probabilities: np.ndarray, class_ids: np.ndarray, curve: Sequence[dict[str, float]]
) -> dict[str, Any] | None:
    """The error on the audit pictures as the page shows it; None without such pictures."""
    if not (lesson.audited >= 0).any():
        return None
    point = _point(lesson, probabilities, class_ids, len(lesson.order))
    # A point for each tenth more labels is enough.
    earlier = [one for one in curve if one["labels"] <= 0.9 * point["labels"]]
    points = [*earlier, point]
    shown = {name: point[name] for name in ("error", "low", "high", "audited")}
    return {**shown, "curve": points, "advice": audit.advice(points)}


def _point(lesson: Lesson, probabilities: np.ndarray, class_ids: np.ndarray, labels: int) -> dict[str, float]:
    rows = np.flatnonzero(lesson.audited >= 0)
    wrong = int((class_ids[probabilities[rows].argmax(1)] != lesson.audited[rows]).sum())
    low, high = audit.error_interval(wrong, len(rows))
    error = 100 * wrong / len(rows)
    values = {"labels": labels, "error": error, "low": low, "high": high, "audited": len(rows)}
    return {name: round(value, 2) for name, value in values.items()}


def _labels_of(lesson: Lesson, rows: np.ndarray) -> np.ndarray:
    """The labels of some rows; the others have none, and those that must not be chosen stay so."""
    labels = np.where(lesson.labels >= 0, -1, lesson.labels)
    labels[rows] = lesson.labels[rows]
    return labels


def _compact(labels: np.ndarray, class_ids: np.ndarray) -> np.ndarray:
    """Class ids → 0, 1, …; negative values stay."""
    return np.where(labels >= 0, np.searchsorted(class_ids, np.maximum(labels, 0)), labels)
