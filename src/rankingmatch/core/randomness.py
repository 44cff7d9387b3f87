"""Randomness as a function of (seed, step, purpose): no generator carries state from step to step.

Everything random in a step is drawn for the whole batch, on the CPU, from a generator created for that step.
So a resumed run, another device, or a batch divided over processes sees the same draws.
"""

from enum import IntEnum

import numpy as np
import torch


class Purpose(IntEnum):
    """What a draw is for. The numbers are part of every result: never renumber."""

    SPLIT = 0
    INITIAL_WEIGHTS = 1
    LABELED_ROWS = 2
    UNLABELED_ROWS = 3
    LABELED_VIEWS = 4
    UNLABELED_VIEWS = 5
    METHOD = 6
    NETWORK = 7
    PROBES = 8
    BANK = 9
    SELECTION = 10
    RANDOM_CHECKS = 11
    ANCHORS = 12
    TRIALS = 13


def numpy_generator(seed: int, purpose: Purpose, *position: int) -> np.random.Generator:
    """A NumPy generator for this seed, purpose and position (a step, an epoch)."""
    return np.random.default_rng([seed, purpose, *position])


def derived_seed(seed: int, purpose: Purpose, *position: int) -> int:
    """A 63-bit seed for this seed, purpose and position."""
    state = np.random.SeedSequence([seed, purpose, *position]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def torch_generator(seed: int, purpose: Purpose, *position: int) -> torch.Generator:
    """A CPU torch generator for this seed, purpose and position."""
    return torch.Generator().manual_seed(derived_seed(seed, purpose, *position))
