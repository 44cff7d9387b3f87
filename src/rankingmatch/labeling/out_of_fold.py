"""Predictions for labeled pictures by heads that have not seen their labels."""

import numpy as np

from rankingmatch.heads.linear import fit_head

__all__ = ["out_of_fold"]

FOLDS = 5


def out_of_fold(features: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Predict each labeled picture with a head that was trained without it: logistic regression on the others.

    Parameters
    ----------
    features : numpy.ndarray
        Features of all pictures, of shape (n, d).
    labels : numpy.ndarray
        Labels of shape (n,); negative without a label.
    classes : int
        The number of classes.
    seed : int
        The seed of the folds.

    Returns
    -------
    numpy.ndarray
        Probabilities of shape (labeled, classes), of the labeled pictures in ascending order.
    """
    rows = np.flatnonzero(labels >= 0)
    folds = _folds(labels[rows], seed)
    probabilities = np.zeros((len(rows), classes), np.float32)
    for fold in np.unique(folds):
        hidden = np.array(labels, copy=True)
        hidden[rows[folds == fold]] = -1
        if (hidden >= 0).any():
            head = fit_head(features, hidden, classes, seed)
            probabilities[folds == fold] = head.probabilities(features[rows[folds == fold]])
        else:
            probabilities[folds == fold] = 1 / classes
    return probabilities


def _folds(labels: np.ndarray, seed: int) -> np.ndarray:
    """A fold for each label, such that the labels of a class are spread evenly over the folds."""
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), np.int64)
    folds[order] = np.arange(len(labels)) % FOLDS
    return folds
