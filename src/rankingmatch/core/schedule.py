"""How numbers change over a run."""

import math
from typing import Literal

Annealing = Literal["none", "linear", "exp", "log"]


def cosine(base: float, step: int, steps: int) -> float:
    """Eq. (8): η cos(7πs / 16S)."""
    return base * math.cos(7 * math.pi * step / (16 * steps))


def ema_decay(decay: float, step: int) -> float:
    """The decay of the weight average at a step: min(decay, (1+s)/(10+s)), so that it forgets its random start."""
    return min(decay, (1 + step) / (10 + step))


def batchnorm_momentum(steps: int) -> float:
    """A BatchNorm momentum that looks back over the same share of any run.

    It is 0.001 at the 131,072 steps of a full run and grows as the run shrinks, up to PyTorch's 0.1.
    """
    return min(0.1, max(0.001, 0.001 * 131_072 / steps))


def linear_ramp(step: int, steps: int, fraction: float) -> float:
    """min(1, s / (fraction · S)): grows from 0 at the first step to 1 after this fraction of a run, and stays there."""
    length = fraction * steps
    return 1.0 if step >= length else step / length


def tsa_threshold(kind: Annealing, step: int, steps: int, classes: int) -> float:
    """Training signal annealing: α (1 - 1/K) + 1/K, from the probability of a guess (K classes) to certainty.

    α is s/S (linear), e^(5 (s/S - 1)) (exp: late) or 1 - e^(-5 s/S) (log: early). "none" is a threshold that no
    probability exceeds.
    """
    done = step / steps
    if kind == "none":
        return math.inf
    alpha = {"linear": done, "exp": math.exp(5 * (done - 1)), "log": 1 - math.exp(-5 * done)}[kind]
    return alpha * (1 - 1 / classes) + 1 / classes
