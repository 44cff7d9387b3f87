"""Which rows a step draws, as a function of (seed, step) alone: there is no state to save."""

from functools import lru_cache

import numpy as np

from rankingmatch.core.randomness import Purpose, numpy_generator

ROUNDS = 8  # of the Feistel network: small pools, with few bits to mix, need more than the usual four


def rows_of_step(pool: np.ndarray, count: int, seed: int, purpose: Purpose, step: int) -> np.ndarray:
    """Draw `count` rows of a pool for a step, from 0, of the random stream (seed, purpose)."""
    rows: np.ndarray = pool[indices_of_step(len(pool), count, seed, purpose, step)]
    return rows


def indices_of_step(size: int, count: int, seed: int, purpose: Purpose, step: int) -> np.ndarray:
    """Draw `count` indices into a pool for a step.

    Together, the steps read an endless sequence of shuffled copies of the pool: each index is drawn once before any is
    drawn again, also if the pool is smaller than a batch.
    """
    position = np.arange(step * count, (step + 1) * count)
    epoch, offset = np.divmod(position, size)
    indices = np.empty(count, dtype=np.int64)
    for number in np.unique(epoch):
        within = epoch == number
        indices[within] = shuffled(offset[within], size, _keys(seed, purpose, int(number)))
    return indices


def shuffled(positions: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """Where a keyed permutation of range(size) takes these positions: computed, so that no order is ever stored.

    A Feistel network, with a key for each round, permutes the smallest range of 4^h numbers that holds them all; a
    number beyond `size` is permuted again until it is below, which gives a permutation of range(size) (at most 4 passes
    on average).
    """
    half_bits = np.uint64(max(1, -(-(size - 1).bit_length() // 2)))
    values = _feistel(positions.astype(np.uint64), half_bits, keys)
    while (beyond := values >= size).any():
        values[beyond] = _feistel(values[beyond], half_bits, keys)
    return values.astype(np.int64)


def _feistel(values: np.ndarray, half_bits: np.uint64, keys: np.ndarray) -> np.ndarray:
    """Each round, (left, right) → (right, left ⊕ hash(right, key)), which can be undone for any hash."""
    mask = (np.uint64(1) << half_bits) - np.uint64(1)
    left, right = values >> half_bits, values & mask
    for key in keys:
        left, right = right, left ^ (_hash(right ^ key) & mask)
    mixed: np.ndarray = (left << half_bits) | right
    return mixed


def _hash(values: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64: every bit of the result depends on every bit of the value."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed


@lru_cache(maxsize=8)
def _keys(seed: int, purpose: Purpose, epoch: int) -> np.ndarray:
    return numpy_generator(seed, purpose, epoch).integers(2**64, size=ROUNDS, dtype=np.uint64)
