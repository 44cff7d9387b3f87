"""Classifiers on fixed features: of labels alone, trained by a method, and the head of a network; smoothed features."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tiny import clusters

from rankingmatch.core.errors import ConfigError
from rankingmatch.heads import HEAD_METHOD, linear, require_head_method, smoothing
from rankingmatch.heads.linear import fit_head, fitted_head
from rankingmatch.heads.smoothing import fit_smoothing, smooth_features, unit_features
from rankingmatch.methods import METHODS

NEED_IMAGES = ("swwae", "cc-gan")


@pytest.mark.parametrize("present", [(0, 1, 2, 3), (1, 3)])
def test_the_head_is_balanced_logistic_regression_and_gives_absent_classes_no_probability(
    present: tuple[int, ...],
) -> None:
    features, truth = clusters()
    rows = np.flatnonzero(np.isin(truth, present))[:21]
    labels = np.full(len(truth), -1)
    labels[rows] = truth[rows]
    found = fit_head(features, labels, 4, seed=0).probabilities(features)
    units = unit_features(features)
    regularization = linear.INVERSE_REGULARIZATION
    expected = LogisticRegression(C=regularization, class_weight="balanced", max_iter=500, tol=1e-3)
    expected.fit(units[rows], truth[rows])
    np.testing.assert_allclose(found[:, list(present)], expected.predict_proba(units), atol=1e-4)
    assert found.shape == (len(truth), 4)
    assert (np.delete(found, present, axis=1) == 0).all()


def test_a_head_of_one_class_predicts_it() -> None:
    features, _ = clusters()
    labels = np.full(len(features), -1)
    labels[5] = 2
    assert fit_head(features, labels, 3, seed=0).probabilities(features[:2]).tolist() == [[0, 0, 1]] * 2


def test_smoothing_is_the_formula() -> None:
    features, _ = clusters(each=10)
    units = unit_features(features)  # 24 dimensions: all principal components are kept
    expected = []
    for own in units:
        near = sorted(units, key=lambda other: -float(own @ other))[: smoothing.NEIGHBORS]
        mixed = (1 - smoothing.MIX) * own + smoothing.MIX * np.mean(near, axis=0)
        expected.append(mixed / np.linalg.norm(mixed))
    found = smooth_features(features, seed=0)
    # Principal components are a rotation, which changes no inner product.
    np.testing.assert_allclose(found @ found.T, np.array(expected) @ np.array(expected).T, atol=1e-4)


def test_smoothing_makes_classes_easier_to_tell_apart() -> None:
    features, truth = clusters(each=100)
    labels = np.full(len(truth), -1)
    labels[:4] = truth[:4]

    def error(values: np.ndarray) -> float:
        return float((fit_head(values, labels, 4, seed=0).probabilities(values).argmax(1) != truth).mean())

    assert error(smooth_features(features, seed=0)) < 0.7 * error(features)


def test_smoothing_is_independent_of_the_rows_that_are_smoothed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    features, _ = clusters()
    smooth = fit_smoothing(features, seed=0)
    whole = smooth.apply(features)
    monkeypatch.setattr(smoothing, "ROWS", 7)
    np.testing.assert_allclose(smooth.apply(features), whole, atol=1e-6)
    assert smooth.apply(features[:0]).shape == (0, 24)


def test_a_few_pictures_with_many_dimensions_can_be_smoothed() -> None:
    features = np.random.default_rng(0).standard_normal((5, 300)).astype(np.float32)
    smoothed = smooth_features(features, seed=0)
    assert smoothed.shape == (5, 5)
    np.testing.assert_allclose(np.linalg.norm(smoothed, axis=1), 1, atol=1e-5)
    assert smooth_features(features[:1], seed=0).shape == (1, 1)


def test_a_large_folder_has_random_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoothing, "ANCHORS", 30)
    features, _ = clusters()
    first, again, other = (fit_smoothing(features, seed).anchors for seed in (0, 0, 1))
    assert first.shape == (30, 24)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


# --- trained by a method ---------------------------------------------------------------------------------------


def stretched_clusters() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, truth and two labels of each of three classes; the other pictures show the shape of a class."""
    rng = np.random.default_rng(0)
    truth = np.tile([0, 1, 2], 100)
    features = 0.5 * rng.standard_normal((300, 16))
    features[np.arange(300), truth] += 1.5
    labels = np.where(np.arange(300) < 6, truth, -1)
    return features.astype(np.float32), truth, labels


def error(features: np.ndarray, labels: np.ndarray, truth: np.ndarray, method: str) -> float:
    predicted = fit_head(features, labels, 3, 0, method).probabilities(features).argmax(1)
    return float((predicted != truth).mean())


def test_pictures_without_labels_lower_the_error() -> None:
    features, truth, labels = stretched_clusters()
    assert error(features, labels, truth, HEAD_METHOD) < 0.8 * error(features, labels, truth, "logistic-regression")


@pytest.mark.parametrize("method", [name for name in METHODS if name not in NEED_IMAGES])
def test_every_method_that_needs_no_images_trains_a_head(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linear.SETTINGS, "steps", 10)
    require_head_method(method)
    features, _, labels = stretched_clusters()
    start = fit_head(features, labels, 3, 0)
    head = fit_head(features, labels, 3, 0, method)
    assert np.isfinite(head.weight).all()
    assert not np.allclose(head.weight, start.weight)
    again = fit_head(features, labels, 3, 0, method)
    assert np.array_equal(again.weight, head.weight)
    assert np.array_equal(again.bias, head.bias)


@pytest.mark.parametrize(
    ("method", "words"), [*zip(NEED_IMAGES, NEED_IMAGES, strict=True), ("softmach", "'softmatch'")]
)
def test_methods_that_need_images_or_do_not_exist_are_refused(method: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        require_head_method(method)


def test_a_class_without_labels_keeps_the_probability_zero() -> None:
    features, truth, labels = stretched_clusters()
    labels[truth == 1] = -1
    probabilities = fit_head(features, labels, 3, 0, HEAD_METHOD).probabilities(features)
    assert (probabilities[:, 1] == 0).all()
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)


def test_pictures_that_must_not_be_used_do_not_matter() -> None:
    features, _, labels = stretched_clusters()
    labels[200:] = -2
    head = fit_head(features, labels, 3, 0, HEAD_METHOD)
    # Only the mean of all features, which the head subtracts, is still theirs.
    features[200:] = features[200:][::-1]
    np.testing.assert_allclose(fit_head(features, labels, 3, 0, HEAD_METHOD).weight, head.weight, atol=1e-4)


def test_without_unlabeled_pictures_the_head_is_logistic_regression() -> None:
    features, truth, _ = stretched_clusters()
    trained, plain = (fit_head(features, truth, 3, 0, method) for method in (HEAD_METHOD, "logistic-regression"))
    assert np.array_equal(trained.weight, plain.weight)


# --- the head of a network -------------------------------------------------------------------------------------


def three_clusters(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Features around three centers, and the cluster of each."""
    random = np.random.default_rng(0)
    truth = np.arange(count) % 3
    centers = random.normal(size=(3, 8)) * 4
    return (centers[truth] + random.normal(size=(count, 8))).astype(np.float32), truth


def predictions(features: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """The classes that a fitted head predicts, in plain loops."""
    head = fitted_head(features, labels, classes, seed=0)
    result = []
    for row in features:
        direction = (row - head["center"]) / np.sqrt(((row - head["center"]) ** 2).sum())
        result.append(int(np.argmax([direction @ w + b for w, b in zip(head["weight"], head["bias"], strict=True)])))
    return np.array(result)


def test_one_label_of_each_cluster_is_enough() -> None:
    features, truth = three_clusters(300)
    assert (predictions(features, np.where(np.arange(300) < 3, truth, -1), 3) == truth).mean() > 0.98


def test_the_head_is_weighted_logistic_regression_on_given_and_predicted_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, truth = three_clusters(12)
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


def test_two_classes_have_a_head_with_two_rows() -> None:
    features, truth = three_clusters(60)
    features, truth = features[truth < 2], truth[truth < 2]
    labels = np.where(np.arange(len(truth)) < 4, truth, -1)
    assert fitted_head(features, labels, 2, seed=0)["weight"].shape == (2, 8)
    assert (predictions(features, labels, 2) == truth).mean() > 0.98


def test_equal_images_are_no_problem() -> None:
    features = np.zeros((12, 4), np.float32)
    features[6:, 0] = 1
    labels = np.full(12, -1)
    labels[0], labels[1] = 0, 1
    assert all(np.isfinite(values).all() for values in fitted_head(features, labels, 2, seed=0).values())
