"""The classifier on fixed features, and the smoothing of features."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tiny import clusters

from rankingmatch.heads import linear, smoothing
from rankingmatch.heads.linear import fit_head
from rankingmatch.heads.smoothing import fit_smoothing, smooth_features, unit_features


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
