"""The rows of a step depend on (seed, step) alone and visit the pool evenly."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankingmatch.core.randomness import Purpose
from rankingmatch.data import indices_of_step, rows_of_step
from rankingmatch.data.sampler import shuffled

POOL = np.array([3, 5, 8, 13, 21, 34, 55])


def stream(pool: np.ndarray, count: int, steps: int, seed: int = 0) -> list[int]:
    return [row for step in range(steps) for row in rows_of_step(pool, count, seed, Purpose.UNLABELED_ROWS, step)]


@given(st.integers(1, 300), st.integers(1, 200), st.integers(1, 12))
def test_every_row_comes_once_before_any_comes_again(size: int, count: int, steps: int) -> None:
    rows = stream(np.arange(size), count, steps)
    for start in range(0, len(rows) - size + 1, size):
        assert sorted(rows[start : start + size]) == list(range(size))


@pytest.mark.parametrize("count", [1, 7, 20])
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


def orders(size: int, count: int) -> np.ndarray:
    keys = np.random.default_rng(0).integers(2**64, size=(count, 8), dtype=np.uint64)
    return np.stack([shuffled(np.arange(size), size, key) for key in keys])


def is_uniform(counts: np.ndarray) -> bool:
    """Pearson's χ² has one degree of freedom less than counts; 6 standard deviations above its mean is a defect."""
    freedom, expected = len(counts) - 1, counts.mean()
    return bool(((counts - expected) ** 2 / expected).sum() < freedom + 6 * np.sqrt(2 * freedom))


@pytest.mark.parametrize("size", [2, 6, 17])
def test_every_row_is_equally_likely_at_every_place_and_after_every_other(size: int) -> None:
    drawn = orders(size, 2_000)
    assert all(is_uniform(np.bincount(rows, minlength=size)) for rows in drawn.T)
    if size == 6:
        pairs = np.bincount(drawn[:, 2] * size + drawn[:, 3], minlength=size * size).reshape(size, size)
        assert is_uniform(pairs[~np.eye(size, dtype=bool)])


def test_a_hundred_million_rows_need_no_memory() -> None:
    size = 10**8
    tracemalloc.start()
    rows = indices_of_step(size, 448, 0, Purpose.UNLABELED_ROWS, 12_345)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(rows.tolist())) == 448
    assert 0 <= rows.min() < size // 10 < size - size // 10 < rows.max() < size
    assert peak < 2**18
