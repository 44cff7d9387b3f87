"""Which rows a step sees, as a function of (seed, step) alone: there is no state to save."""

from functools import lru_cache

import numpy as np

from rankingmatch.core.randomness import Purpose, numpy_generator


def rows_of_step(pool: np.ndarray, count: int, seed: int, purpose: Purpose, step: int) -> np.ndarray:
    """`count` rows of the pool for a step."""
    rows: np.ndarray = pool[places_of_step(len(pool), count, seed, purpose, step)]
    return rows


def places_of_step(size: int, count: int, seed: int, purpose: Purpose, step: int) -> np.ndarray:
    """`count` places in a pool of this size for a step.

    The steps together read an endless row of shuffled copies of the pool, so that each row comes once before
    any comes again, also where the pool is smaller than a batch.
    """
    position = np.arange(step * count, (step + 1) * count)
    epoch, place = np.divmod(position, size)
    chosen = np.empty(count, dtype=np.int64)
    for number in np.unique(epoch):
        here = epoch == number
        chosen[here] = _order(size, seed, purpose, int(number))[place[here]]
    return chosen


@lru_cache(maxsize=8)
def _order(size: int, seed: int, purpose: Purpose, epoch: int) -> np.ndarray:
    return numpy_generator(seed, purpose, epoch).permutation(size)
