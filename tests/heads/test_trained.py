"""Our methods train a head on fixed features, with the help of the pictures without labels."""

import numpy as np
import pytest

from rankingmatch.core.errors import ConfigError
from rankingmatch.heads import HEAD_METHOD, linear, require_head_method
from rankingmatch.heads.linear import fit_head
from rankingmatch.methods import METHODS

NEED_IMAGES = ("swwae", "cc-gan")


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


@pytest.mark.parametrize("method", NEED_IMAGES)
def test_a_method_that_needs_images_is_refused(method: str) -> None:
    with pytest.raises(ConfigError, match=method):
        require_head_method(method)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'softmatch'"):
        require_head_method("softmach")


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
