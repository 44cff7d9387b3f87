"""A model that learns from the labels so far: predictions for all images, what to label next, and its error."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rankingmatch.heads.linear import fit_head
from rankingmatch.labeling.random_checks import advice, error_point
from rankingmatch.labeling.selection import next_images

RANKED = 64  # images that are ordered at once
FEWEST = 2  # labels of each of two classes
CURVE_STEPS = (8, 4, 2)  # an eighth, a quarter and half of the labels
FOLDS = 5

Guesses = dict[int, tuple[int, float]]  # by the number of an image: the id of a class, and how confident the model is


def guesses_of(numbers: np.ndarray, known: np.ndarray, probabilities: np.ndarray, class_ids: np.ndarray) -> Guesses:
    """The most probable class of every image whose row is known, in the order of the images' numbers."""
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(numbers[rows])]
    best, confidence = class_ids[probabilities[rows].argmax(1)], probabilities[rows].max(1)
    return dict(zip(numbers[rows].tolist(), zip(best.tolist(), confidence.tolist(), strict=True), strict=True))


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
    def is_enough(self) -> bool:
        """Whether there are enough labels to train a head."""
        counts = np.unique(self.labels[self.labels >= 0], return_counts=True)[1]
        return int((counts >= FEWEST).sum()) >= 2

    def learn(self, seed: int, method: str) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities (m, classes) of a head that is trained on the labels, and class ids."""
        labels, class_ids = self._compact()
        head = fit_head(self.features, labels, len(class_ids), seed, method)
        return head.probabilities(self.features), class_ids

    def ranking(
        self, seed: int, probabilities: np.ndarray | None = None, class_ids: np.ndarray | None = None
    ) -> list[tuple[int, str]]:
        """The images to label next, with the reasons; probabilities (m, classes) are those of these class ids."""
        chosen = next_images(self.features, self._compact(class_ids)[0], probabilities, RANKED, seed)
        return [(int(self.numbers[row]), why) for row, why in chosen]

    def doubts(self, seed: int) -> Guesses:
        """What a model that was trained without a label predicts instead of it, the most confident ones first.

        Random checks are not among them: if only those that the model contradicts were corrected, its error would look
        lower than it is.
        """
        labels, class_ids = self._compact()
        rows = np.flatnonzero(labels >= 0)
        predicted = out_of_fold(self.features, labels, len(class_ids), seed)
        best, confidence = predicted.argmax(1), predicted.max(1)
        wrong = np.flatnonzero(best != labels[rows])
        wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
        return {int(self.numbers[rows[at]]): (int(class_ids[best[at]]), float(confidence[at])) for at in wrong}

    def curve(self, seed: int, method: str) -> list[dict[str, float]]:
        """The error with an eighth, a quarter and half of the labels, in the order in which they were given."""
        points = []
        for count in [len(self.order) // divisor for divisor in CURVE_STEPS]:
            labels = np.where(self.labels >= 0, -1, self.labels)
            labels[self.order[:count]] = self.labels[self.order[:count]]
            part = self._replace(labels=labels)
            if part.is_enough and (self.checks >= 0).any():
                points.append(self._point(*part.learn(seed, method), count))
        return points

    def quality(
        self, probabilities: np.ndarray, class_ids: np.ndarray, curve: Sequence[dict[str, float]]
    ) -> dict[str, Any] | None:
        """The error on the random checks as the page shows it; None without any."""
        if not (self.checks >= 0).any():
            return None
        point = self._point(probabilities, class_ids, len(self.order))
        # A point for each tenth more labels is enough.
        points = [*(one for one in curve if one["labels"] <= 0.9 * point["labels"]), point]
        return {**point, "curve": points, "advice": advice(points)}

    def _point(self, probabilities: np.ndarray, class_ids: np.ndarray, labels: int) -> dict[str, float]:
        rows = np.flatnonzero(self.checks >= 0)
        wrong = int((class_ids[probabilities[rows].argmax(1)] != self.checks[rows]).sum())
        return error_point(labels, wrong, len(rows))

    def _compact(self, class_ids: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The labels with 0, 1, … instead of the ids of the classes, and these; negative values stay."""
        class_ids = np.unique(self.labels[self.labels >= 0]) if class_ids is None else class_ids
        return np.where(self.labels >= 0, np.searchsorted(class_ids, self.labels), self.labels), class_ids


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
