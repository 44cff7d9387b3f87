"""Metrics on predictions small enough to count."""

import numpy as np
import pytest

from rankingmatch.core.metrics import Errors, calibration_error, confusion_matrix


def test_confusion_counts_true_class_by_predicted_class() -> None:
    confusion = confusion_matrix(np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 2, 0]), 3)
    assert confusion.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 1]]
    assert Errors.of(confusion).error == pytest.approx(40.0)


def test_calibration_error_is_the_mean_gap_of_the_bins() -> None:
    # Two images at 0.9, one right: gap 0.4 each; two at 0.6, both right: gap 0.4 each.
    confidence = np.array([0.9, 0.9, 0.6, 0.6])
    correct = np.array([True, False, True, True])
    assert calibration_error(confidence, correct, bins=10) == pytest.approx(40.0)
    assert calibration_error(np.array([1.0, 1.0]), np.array([True, True])) == 0.0


def test_recalls_and_the_balanced_error_weigh_classes_equally() -> None:
    errors = Errors.of(np.array([[9, 1, 0], [1, 1, 0], [0, 0, 0]]))
    assert errors.recall == [90.0, 50.0, None]
    assert errors.balanced_error == pytest.approx((10 + 50) / 2)
    assert errors.error == pytest.approx(100 * 2 / 12)
