"""A model that learns from the labels so far: predictions for all images, what to label next, and its error."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rankingmatch.heads.linear import fit_head
from rankingmatch.labeling.random_checks import advice, error_point
from rankingmatch.labeling.selection import next_images

__all__ = [
    "NO_GUESSES",
    "Guesses",
    "Lesson",
    "curve_of",
    "doubts_of",
    "guesses_of",
    "learn",
    "out_of_fold",
    "quality_of",
    "ranking_of",
]

RANKED = 64  # images that are ordered at once
FEWEST = 2  # labels of each of two classes
CURVE_STEPS = (8, 4, 2)  # an eighth, a quarter and half of the labels
FOLDS = 5


class Guesses(NamedTuple):
    """What a model predicts: ascending image numbers (m,), class ids (m,), confidences (m,); and doubts about labels.

    Doubts are labeled images that the model contradicts, each with the class that it predicts instead and its
    confidence, the most confident ones first.
    """

    numbers: np.ndarray
    classes: np.ndarray
    confidences: np.ndarray
    doubts: tuple[tuple[int, int, float], ...] = ()

    def of(self, number: int) -> tuple[int, float] | None:
        """Class and confidence for an image; None if the model has not seen it."""
        at = int(np.searchsorted(self.numbers, number))
        if at == len(self.numbers) or self.numbers[at] != number:
            return None
        return int(self.classes[at]), float(self.confidences[at])


NO_GUESSES = Guesses(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))


class Lesson(NamedTuple):
    """What there is to learn from.

    Its m rows have image `numbers`, `features` (m, d), and `labels` for training: class ids, −1 without a label, −2 for
    images that must not be chosen. `checks` are the class ids of random checks, −1 for all others. `order` has the rows
    of labels for training, the oldest first. Features that are not `known` are zero, and the label is then negative.
    """

    numbers: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    checks: np.ndarray
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

    def with_labels_of(self, rows: np.ndarray) -> "Lesson":
        """The same without the labels of other rows; those that must not be chosen stay so."""
        labels = np.where(self.labels >= 0, -1, self.labels)
        labels[rows] = self.labels[rows]
        return self._replace(labels=labels)


def learn(lesson: Lesson, seed: int, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (m, classes) of a head that is trained on the labels, and class ids."""
    class_ids = lesson.class_ids
    head = fit_head(lesson.features, _compact(lesson.labels, class_ids), len(class_ids), seed, method)
    return head.probabilities(lesson.features), class_ids


def guesses_of(numbers: np.ndarray, known: np.ndarray, probabilities: np.ndarray, class_ids: np.ndarray) -> Guesses:
    """The most probable class of every image whose row is known."""
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(numbers[rows])]
    return Guesses(numbers[rows], class_ids[probabilities[rows].argmax(1)], probabilities[rows].max(1))


def ranking_of(lesson: Lesson, probabilities: np.ndarray | None, seed: int) -> list[tuple[int, str]]:
    """The images to label next, with the reasons."""
    labels = _compact(lesson.labels, lesson.class_ids)
    chosen = next_images(lesson.features, labels, probabilities, RANKED, seed)
    return [(int(lesson.numbers[row]), why) for row, why in chosen]


def doubts_of(lesson: Lesson, class_ids: np.ndarray, seed: int) -> tuple[tuple[int, int, float], ...]:
    """Labels that a model contradicts which was trained without them: number, class id and confidence.

    Random checks are not among them: if only those that the model contradicts were corrected, its error would look
    lower than it is.
    """
    rows = np.flatnonzero(lesson.labels >= 0)
    predicted = out_of_fold(lesson.features, _compact(lesson.labels, class_ids), len(class_ids), seed)
    best, confidence = class_ids[predicted.argmax(1)], predicted.max(1)
    wrong = np.flatnonzero(best != lesson.labels[rows])
    wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
    return tuple((int(lesson.numbers[rows[at]]), int(best[at]), float(confidence[at])) for at in wrong)


def out_of_fold(features: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Probabilities (labeled, classes) for labeled images, each by logistic regression on labels of other folds."""
    rows = np.flatnonzero(labels >= 0)
    order = np.random.default_rng(seed).permutation(len(rows))
    order = order[np.argsort(labels[rows][order], kind="stable")]
    folds = np.empty(len(rows), np.int64)
    folds[order] = np.arange(len(rows)) % FOLDS  # each class is spread evenly
    probabilities = np.full((len(rows), classes), 1 / classes, np.float32)
    for fold in np.unique(folds):
        hidden = np.array(labels, copy=True)
        hidden[rows[folds == fold]] = -1
        if (hidden >= 0).any():
            head = fit_head(features, hidden, classes, seed)
            probabilities[folds == fold] = head.probabilities(features[rows[folds == fold]])
    return probabilities


def curve_of(lesson: Lesson, seed: int, method: str) -> list[dict[str, float]]:
    """The error with an eighth, a quarter and half of the labels, in the order in which they were given."""
    counts = [len(lesson.order) // divisor for divisor in CURVE_STEPS]
    parts = [(lesson.with_labels_of(lesson.order[:count]), count) for count in counts]
    has_checks = bool((lesson.checks >= 0).any())
    return [_point(part, *learn(part, seed, method), count) for part, count in parts if part.is_enough and has_checks]


def quality_of(
    lesson: Lesson, probabilities: np.ndarray, class_ids: np.ndarray, curve: Sequence[dict[str, float]]
) -> dict[str, Any] | None:
    """The error on the random checks as the page shows it; None without any."""
    if not (lesson.checks >= 0).any():
        return None
    point = _point(lesson, probabilities, class_ids, len(lesson.order))
    # A point for each tenth more labels is enough.
    points = [*(one for one in curve if one["labels"] <= 0.9 * point["labels"]), point]
    return {**point, "curve": points, "advice": advice(points)}


def _point(lesson: Lesson, probabilities: np.ndarray, class_ids: np.ndarray, labels: int) -> dict[str, float]:
    rows = np.flatnonzero(lesson.checks >= 0)
    wrong = int((class_ids[probabilities[rows].argmax(1)] != lesson.checks[rows]).sum())
    return error_point(labels, wrong, len(rows))


def _compact(labels: np.ndarray, class_ids: np.ndarray) -> np.ndarray:
    """Class ids → 0, 1, …; negative values stay."""
    return np.where(labels >= 0, np.searchsorted(class_ids, np.maximum(labels, 0)), labels)
