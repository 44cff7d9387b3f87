"""Datasets and splits in memory: uint8 images, integer labels, -1 = unlabeled."""

from dataclasses import dataclass

import numpy as np

__all__ = ["UNLABELED", "Dataset", "Images", "Split"]

UNLABELED = -1


@dataclass(frozen=True)
class Images:
    """Images and their labels.

    Attributes
    ----------
    images
        (n, h, w, c) uint8.
    labels
        (n,) int64; -1 for unlabeled images.
    """

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: np.ndarray) -> "Images":
        """Return the images and labels of these rows.

        Parameters
        ----------
        rows
            Row numbers, (m,).

        Returns
        -------
        Images
            Copies, (m, h, w, c) and (m,).
        """
        return Images(self.images[rows], self.labels[rows])


@dataclass(frozen=True)
class Dataset:
    """All images of a source, before any label is hidden.

    Attributes
    ----------
    classes
        The class names.
    train
        The training images, labeled and unlabeled.
    validation, test
        Images for evaluation, if there are any.
    folds
        For datasets with predefined folds: the labeled rows of `train` in each fold.
    fingerprint
        For folders: a checksum of names, labels, sizes and times of the files.
    skipped
        For folders: the files that could not be read, each with the reason.
    """

    classes: tuple[str, ...]
    train: Images
    validation: Images | None = None
    test: Images | None = None
    folds: tuple[np.ndarray, ...] = ()
    fingerprint: str = ""
    skipped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Split:
    """The images and labels of a run. Training images are never copied: they may be larger than the memory.

    Attributes
    ----------
    classes
        The class names.
    images
        All training images, (n, h, w, c) uint8.
    labels
        (n,) integers of the smallest type; -1 where the label is hidden, unknown or held out.
    truth
        (n,), the same with the hidden labels. Only for measuring: no method ever gets it.
    labeled_rows
        The rows of the labeled images.
    drawn_rows
        The labeled rows as batches draw them: if balanced, those of rarer classes are repeated.
    unlabeled_rows
        The rows of the images used without labels, int32 if there are fewer than 2^31.
    validation_rows
        The rows held out for validation.
    validation, test
        Images for evaluation, if there are any.
    fingerprint, skipped
        As in `Dataset`.
    """

    classes: tuple[str, ...]
    images: np.ndarray
    labels: np.ndarray
    truth: np.ndarray
    labeled_rows: np.ndarray
    drawn_rows: np.ndarray
    unlabeled_rows: np.ndarray
    validation_rows: np.ndarray
    validation: Images | None
    test: Images | None
    fingerprint: str = ""
    skipped: tuple[tuple[str, str], ...] = ()
