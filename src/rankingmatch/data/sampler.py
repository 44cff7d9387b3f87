"""Which rows a step draws, as a function of (seed, step) alone: there is no state to save."""

from functools import lru_cache

import numpy as np

from rankingmatch.core.randomness import Purpose, numpy_generator

__all__ = ["indices_of_step", "rows_of_step"]


def rows_of_step(pool: np.ndarray, count: int, seed: int, purpose: Purpose, step: int) -> np.ndarray:
    """Draw rows of a pool for a step.

    Parameters
    ----------
    pool
        Row numbers, (size,).
    count
        The number of rows of a step.
    seed, purpose
        The random stream.
    step
        The step, from 0.

    Returns
    -------
    ndarray
        Row numbers, (count,).
    """
    rows: np.ndarray = pool[indices_of_step(len(pool), count, seed, purpose, step)]
    return rows


def indices_of_step(size: int, count: int, seed: int, purpose: Purpose, step: int) -> np.ndarray:
    """Draw indices into a pool for a step.

    Together, the steps read an endless sequence of shuffled copies of the pool: each index is drawn once before any is
    drawn again, also if the pool is smaller than a batch.

    Parameters
    ----------
    size
        The size of the pool.
    count
        The number of indices of a step.
    seed, purpose
        The random stream.
    step
        The step, from 0.

    Returns
    -------
    ndarray
        Indices in [0, size), (count,).
    """
    position = np.arange(step * count, (step + 1) * count)
    epoch, offset = np.divmod(position, size)
    indices = np.empty(count, dtype=np.int64)
    for number in np.unique(epoch):
        within = epoch == number
        indices[within] = _order(size, seed, purpose, int(number))[offset[within]]
    return indices


@lru_cache(maxsize=8)
def _order(size: int, seed: int, purpose: Purpose, epoch: int) -> np.ndarray:
    return numpy_generator(seed, purpose, epoch).permutation(size)
