"""The error of the model, from images drawn at random."""

import numpy as np
import pytest
from scipy.stats import binomtest

from rankingmatch.labeling import random_checks
from rankingmatch.labeling.random_checks import advice, draw_checks, enough, error_interval, error_point


def test_random_checks_are_a_uniform_sample_of_the_folder() -> None:
    drawn = np.array([draw_checks(50, seed) for seed in range(400)])
    assert drawn.shape == (400, 10)
    assert all(len(set(row)) == 10 for row in drawn)
    counts = np.bincount(drawn.ravel(), minlength=50)  # each is 80 on average, with a deviation of 8
    assert counts.min() > 80 - 4.5 * 8
    assert counts.max() < 80 + 4.5 * 8
    assert draw_checks(50, 3).tolist() == draw_checks(50, 3).tolist()
    assert len(draw_checks(1_000_000, 0)) == random_checks.MOST


@pytest.mark.parametrize(("wrong", "checks"), [(0, 0), (0, 1), (1, 1), (0, 20), (3, 20), (20, 20), (25, 50), (7, 300)])
def test_the_interval_is_clopper_and_pearsons(wrong: int, checks: int) -> None:
    expected = binomtest(wrong, checks).proportion_ci(0.95, method="exact") if checks else (0, 1)
    assert error_interval(wrong, checks) == pytest.approx([100 * limit for limit in expected])


@pytest.mark.parametrize(
    ("curve", "text"),
    [
        ([], "too few random checks"),
        ([(40, 3, 10)], "too few random checks"),
        ([(90, 7, 22)], "between 14% and 55%"),
        ([(40, 9, 22), (88, 7, 22)], "The last 48 labels lowered the error by 9 percentage points"),
        ([(40, 7, 22), (88, 7, 22)], "there are only 22 random checks"),
        ([(100, 12, 60), (150, 15, 60), (240, 12, 60)], "The last 140 labels hardly lowered"),
    ],
)
def test_advice_compares_with_half_of_the_labels(curve: list[tuple[int, int, int]], text: str) -> None:
    assert text in advice([error_point(labels, wrong, checks) for labels, wrong, checks in curve])


@pytest.mark.parametrize(
    ("counts", "suggested", "why"),
    [
        ({}, 16, "two classes"),
        ({"cat": 5}, 16, "two classes"),
        ({"cat": 5, "dog": 0}, 16, "“dog” has no label"),
        ({"cat": 50, "dog": 1}, 52, "“dog” has only one label"),
        ({"cat": 5, "dog": 6}, 16, "8 labels per class"),
        ({"cat": 10, "dog": 6}, 16, "enough labels to train"),
    ],
)
def test_enough_labels(counts: dict[str, int], suggested: int, why: str) -> None:
    found = enough(counts)
    assert (found["have"], found["suggested"]) == (sum(counts.values()), suggested)
    assert why in found["why"]
