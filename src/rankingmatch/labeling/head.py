"""A classifier on fixed features, trained again after every few labels."""

from dataclasses import dataclass

import numpy as np

from rankingmatch.core.vectors import unit_features
from rankingmatch.labeling.smoothing import known_rows

__all__ = ["Head", "fit_head", "out_of_fold"]

INVERSE_REGULARIZATION = 10.0
FOLDS = 5


@dataclass(frozen=True)
class Head:
    """A linear classifier of unit features.

    Attributes
    ----------
    mean : numpy.ndarray
        The mean of the features that it was trained on, of shape (d,).
    weight : numpy.ndarray
        Of shape (d, classes).
    bias : numpy.ndarray
        Of shape (classes,); −∞ for a class without labels, whose probability is zero.
    """

    mean: np.ndarray
    weight: np.ndarray
    bias: np.ndarray

    def probabilities(self, features: np.ndarray) -> np.ndarray:
        """Predict the probabilities of the classes.

        Parameters
        ----------
        features : numpy.ndarray
            Features of shape (n, d).

        Returns
        -------
        numpy.ndarray
            Probabilities of shape (n, classes).
        """
        return _softmax(unit_features(features, self.mean) @ self.weight + self.bias)


def fit_head(features: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> Head:
    """Train a head on the labeled pictures.

    Parameters
    ----------
    features : numpy.ndarray
        Features of all pictures, of shape (n, d), best from `smooth_features`.
    labels : numpy.ndarray
        Labels of shape (n,); negative without a label. At least one picture has one.
    classes : int
        The number of classes.
    seed : int
        The seed of everything random.

    Returns
    -------
    Head
        The trained head. Classes without labels have the probability zero.
    """
    rows = np.flatnonzero(labels >= 0)
    known = max(1, int(known_rows(features).sum()))  # the other rows are zero
    mean = (features.sum(0, dtype=np.float64) / known).astype(np.float32)
    weight, bias = _logistic_regression(unit_features(features[rows], mean), labels[rows], classes)
    return Head(mean, weight, bias)


def out_of_fold(features: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Predict each labeled picture with a head that was trained without it.

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


def _logistic_regression(features: np.ndarray, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Weight (d, classes) and bias (classes,) of the classes that occur."""
    from sklearn.linear_model import LogisticRegression

    present = np.unique(labels)
    weight, bias = np.zeros((features.shape[1], classes), np.float32), np.full(classes, -np.inf, np.float32)
    if len(present) == 1:
        bias[present] = 0
        return weight, bias
    model = LogisticRegression(C=INVERSE_REGULARIZATION, class_weight="balanced", max_iter=500, tol=1e-3).fit(
        features, labels
    )
    if len(present) == 2:  # scikit-learn has one row for two classes
        weight[:, present[1]], bias[present] = model.coef_[0], [0, model.intercept_[0]]
    else:
        weight[:, present], bias[present] = model.coef_.T, model.intercept_
    return weight, bias


def _softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of logits (n, classes)."""
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(1, keepdims=True), np.float32)
