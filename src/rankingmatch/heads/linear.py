"""A classifier on fixed features, trained again after every few labels."""

from dataclasses import dataclass

import numpy as np

from rankingmatch.heads.names import LOGISTIC_REGRESSION
from rankingmatch.heads.smoothing import known_rows, unit_features

__all__ = ["Head", "fit_head"]

INVERSE_REGULARIZATION = 10.0


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


def fit_head(
    features: np.ndarray, labels: np.ndarray, classes: int, seed: int, method: str = LOGISTIC_REGRESSION
) -> Head:
    """Train a head on the labeled pictures, and with a method also on those without a label.

    Parameters
    ----------
    features : numpy.ndarray
        Features of all pictures, of shape (n, d), best from `smooth_features`.
    labels : numpy.ndarray
        Labels of shape (n,), −1 without a label, or −2 for pictures that are not used at all. At least one has a label.
    classes : int
        The number of classes.
    seed : int
        The seed of everything random.
    method : str
        Logistic regression, or the method that goes on from it: one of `rankingmatch.methods` that needs no images.

    Returns
    -------
    Head
        The trained head. Classes without labels have the probability zero.
    """
    known = known_rows(features)  # the other rows are zero
    mean = (features.sum(0, dtype=np.float64) / max(1, int(known.sum()))).astype(np.float32)
    used = np.flatnonzero((labels >= 0) | (known & (labels == -1)))
    units, labels = unit_features(features[used], mean), labels[used]
    present = np.unique(labels[labels >= 0])
    labels = np.where(labels >= 0, np.searchsorted(present, labels), -1)
    weight, bias = _logistic_regression(units[labels >= 0], labels[labels >= 0], len(present))
    if method != LOGISTIC_REGRESSION and len(present) > 1 and (labels < 0).any():
        from rankingmatch.heads.trained import train_head

        weight, bias = train_head(units, labels, weight, bias, method, seed)
    whole = Head(mean, np.zeros((len(weight), classes), np.float32), np.full(classes, -np.inf, np.float32))
    whole.weight[:, present], whole.bias[present] = weight, bias
    return whole


def _logistic_regression(features: np.ndarray, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Weight (d, classes) and bias (classes,); each class has a label."""
    from sklearn.linear_model import LogisticRegression

    if classes == 1:
        return np.zeros((features.shape[1], 1), np.float32), np.zeros(1, np.float32)
    model = LogisticRegression(C=INVERSE_REGULARIZATION, class_weight="balanced", max_iter=500, tol=1e-3).fit(
        features, labels
    )
    if classes == 2:  # scikit-learn has one row for two classes
        return np.stack([0 * model.coef_[0], model.coef_[0]], 1), np.array([0, model.intercept_[0]])
    return model.coef_.T, model.intercept_


def _softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of logits (n, classes)."""
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(1, keepdims=True), np.float32)
