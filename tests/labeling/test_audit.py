"""The error of the model, from pictures drawn at random."""

import numpy as np
import pytest
from scipy.stats import binomtest

from rankingmatch.labeling.audit import advice, enough, error_interval


@pytest.mark.parametrize(("wrong", "audited"), [(0, 1), (1, 1), (0, 20), (3, 20), (20, 20), (25, 50), (7, 300)])
def test_the_interval_is_clopper_and_pearsons(wrong: int, audited: int) -> None:
    expected = binomtest(wrong, audited).proportion_ci(0.95, method="exact")
    assert error_interval(wrong, audited) == pytest.approx((100 * expected.low, 100 * expected.high))
    wider = error_interval(wrong, audited, level=0.99)
    assert wider[0] <= expected.low * 100 + 1e-9
    assert wider[1] >= expected.high * 100 - 1e-9


def test_without_audited_pictures_the_interval_is_everything() -> None:
    assert error_interval(0, 0) == (0, 100)


def test_the_interval_contains_the_error_at_least_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    for error in (0.02, 0.1, 0.3):
        draws = rng.binomial(25, error, 2000)
        inside = [low <= 100 * error <= high for low, high in (error_interval(int(wrong), 25) for wrong in draws)]
        assert np.mean(inside) >= 0.94


def point(labels: int, error: float, audited: int) -> dict[str, float]:
    low, high = error_interval(round(error * audited / 100), audited)
    return {"labels": labels, "error": error, "low": low, "high": high, "audited": audited}


@pytest.mark.parametrize(
    ("curve", "text"),
    [
        ([], "too few random checks"),
        ([point(40, 30, 10)], "too few random checks"),
        ([point(90, 30, 22)], "between 14% and 55%"),
        ([point(40, 40, 22), point(88, 30, 22)], "The last 48 labels lowered the error by 10 percentage points"),
        ([point(40, 30, 22), point(88, 30, 22)], "there are only 22 random checks"),
        ([point(100, 20.5, 60), point(150, 25, 60), point(240, 20, 60)], "The last 140 labels hardly lowered"),
    ],
)
def test_advice_compares_with_half_of_the_labels(curve: list[dict[str, float]], text: str) -> None:
    assert text in advice(curve)


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
    assert (found.have, found.suggested) == (sum(counts.values()), suggested)
    assert why in found.why
