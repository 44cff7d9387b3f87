"""Random samples that are the same every time."""

import numpy as np


def sample(count: int, largest: int) -> np.ndarray:
    """At most `largest` of the indices 0 … count - 1, drawn at random with a fixed seed, in ascending order."""
    if count <= largest:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).permutation(count)[:largest])
