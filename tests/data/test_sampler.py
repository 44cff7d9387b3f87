"""The rows of a step depend on (seed, step) alone and visit the pool evenly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankingmatch.core.randomness import Purpose
from rankingmatch.data import rows_of_step

POOL = np.array([3, 5, 8, 13, 21, 34, 55])


def stream(pool: np.ndarray, count: int, steps: int, seed: int = 0) -> list[int]:
    return [row for step in range(steps) for row in rows_of_step(pool, count, seed, Purpose.UNLABELED_ROWS, step)]


@given(st.integers(1, 30), st.integers(1, 20), st.integers(1, 12))
def test_every_row_comes_once_before_any_comes_again(size: int, count: int, steps: int) -> None:
    rows = stream(np.arange(size), count, steps)
    for start in range(0, len(rows) - size + 1, size):
        assert sorted(rows[start : start + size]) == list(range(size))


@pytest.mark.parametrize("count", [1, 4, 7, 20])
def test_a_step_needs_no_history(count: int) -> None:
    rows = stream(POOL, count, 12)
    alone = rows_of_step(POOL, count, 0, Purpose.UNLABELED_ROWS, 9)
    assert alone.tolist() == rows[9 * count : 10 * count]
    assert set(rows) <= set(POOL.tolist())


def test_seeds_and_purposes_are_apart() -> None:
    pool = np.arange(100)
    first = rows_of_step(pool, 100, 0, Purpose.UNLABELED_ROWS, 0)
    assert (first != rows_of_step(pool, 100, 1, Purpose.UNLABELED_ROWS, 0)).any()
    assert (first != rows_of_step(pool, 100, 0, Purpose.LABELED_ROWS, 0)).any()
