"""What a model predicts for the pictures of a session."""

from typing import NamedTuple

import numpy as np

__all__ = ["NO_GUESSES", "Guesses"]


class Guesses(NamedTuple):
    """What the model predicts: for picture numbers (m,), class ids (m,), confidences (m,); and doubts about labels.

    Attributes
    ----------
    numbers, classes, confidences
        Arrays of the same length.
    doubts
        Labeled pictures that the model contradicts, with what it predicts instead and how confident it is, the most
        confident ones first.
    """

    numbers: np.ndarray
    classes: np.ndarray
    confidences: np.ndarray
    doubts: tuple[tuple[int, int, float], ...] = ()

    def of(self, number: int) -> tuple[int, float] | None:
        """Class and confidence for a picture; None if the model has not seen it."""
        at = int(np.searchsorted(self.numbers, number))
        if at == len(self.numbers) or self.numbers[at] != number:
            return None
        return int(self.classes[at]), float(self.confidences[at])


NO_GUESSES = Guesses(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
