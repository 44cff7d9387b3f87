"""The head that training starts from, fitted to given and to predicted labels."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rankingmatch.heads import linear
from rankingmatch.heads.linear import fitted_head
from rankingmatch.heads.smoothing import unit_features


def clusters(count: int = 40, width: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features around three centers, and the cluster of each."""
    random = np.random.default_rng(seed)
    truth = np.arange(count) % 3
    centers = random.normal(size=(3, width)) * 4
    return (centers[truth] + random.normal(size=(count, width))).astype(np.float32), truth


def one_label_each(truth: np.ndarray) -> np.ndarray:
    """The label of the first image of each cluster; -1 for the others."""
    labels = np.full(len(truth), -1)
    for label in range(3):
        row = np.flatnonzero(truth == label)[0]
        labels[row] = label
    return labels


def predictions(features: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """The classes that a fitted head predicts, in plain loops."""
    head = fitted_head(features, labels, classes, seed=0)
    result = []
    for row in features:
        direction = (row - head["center"]) / np.sqrt(((row - head["center"]) ** 2).sum())
        result.append(int(np.argmax([direction @ w + b for w, b in zip(head["weight"], head["bias"], strict=True)])))
    return np.array(result)


def test_one_label_of_each_cluster_is_enough() -> None:
    features, truth = clusters(300)
    assert (predictions(features, one_label_each(truth), 3) == truth).mean() > 0.98


def test_the_head_is_weighted_logistic_regression_on_given_and_predicted_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, truth = clusters(12)
    labels = np.where(np.arange(12) < 3, truth, -1)
    predicted = np.full((12, 3), 0.1)
    predicted[np.arange(12), truth] = 0.8

    class Predicting:
        def probabilities(self, _: np.ndarray) -> np.ndarray:
            return predicted

    monkeypatch.setattr(linear, "fit_head", lambda *_: Predicting())
    center = features.mean(0)
    units = [(row - center) / np.sqrt(((row - center) ** 2).sum()) for row in features]
    # A given label counts as ten images, a predicted one as much as it is probable.
    weights = [10.0 if label >= 0 else 0.8 for label in labels]
    expected = LogisticRegression(max_iter=300).fit(np.array(units), truth, weights)
    head = fitted_head(features, labels, 3, seed=0)
    np.testing.assert_allclose(head["weight"], expected.coef_, atol=1e-3)
    np.testing.assert_allclose(head["bias"], expected.intercept_, atol=1e-3)
    np.testing.assert_allclose(head["center"], center, atol=1e-6)


def test_unlabeled_images_lower_the_error() -> None:
    random = np.random.default_rng(0)
    truth = np.tile([0, 1, 2], 100)
    features = 0.5 * random.standard_normal((300, 16)).astype(np.float32)
    features[np.arange(300), truth] += 1.5
    labels = np.where(np.arange(300) < 6, truth, -1)
    with_all = predictions(features, labels, 3)
    center_and_labels = fitted_head(features[:6], labels[:6], 3, seed=0)
    units = unit_features(features, center_and_labels["center"])
    alone = (units @ center_and_labels["weight"].T + center_and_labels["bias"]).argmax(1)
    assert (with_all != truth).mean() < 0.6 * (alone != truth).mean()


def test_two_classes_have_a_head_with_two_rows() -> None:
    features, truth = clusters(60)
    features, truth = features[truth < 2], truth[truth < 2]
    labels = np.where(np.arange(len(truth)) < 4, truth, -1)
    assert fitted_head(features, labels, 2, seed=0)["weight"].shape == (2, 8)
    assert (predictions(features, labels, 2) == truth).mean() > 0.98


def test_without_unlabeled_images_the_head_is_fitted_to_the_labels() -> None:
    features, truth = clusters(60)
    assert (predictions(features, truth, 3) == truth).all()


def test_equal_images_are_no_problem() -> None:
    features = np.zeros((12, 4), np.float32)
    features[6:, 0] = 1
    labels = np.full(12, -1)
    labels[0], labels[1] = 0, 1
    assert all(np.isfinite(values).all() for values in fitted_head(features, labels, 2, seed=0).values())
