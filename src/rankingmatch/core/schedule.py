"""Schedules: values that depend on the step s, from 0, of S steps of training."""

import math
from typing import Literal

__all__ = ["Annealing", "cosine", "ema_decay", "linear_ramp", "statistics_momentum", "tsa_threshold"]

Annealing = Literal["none", "linear", "exp", "log"]


def cosine(base: float, step: int, steps: int) -> float:
    """Learning rate at a step, Eq. (8): η cos(7πs / 16S)."""
    return base * math.cos(7 * math.pi * step / (16 * steps))


def ema_decay(decay: float, step: int) -> float:
    """Decay of the average of the weights at a step, with warm-up: min(decay, (1 + s) / (10 + s))."""
    return min(decay, (1 + step) / (10 + step))


def statistics_momentum(steps: int) -> float:
    """Weight of a new batch in running statistics that cover the same fraction of training whatever its length.

    It is the momentum of BatchNorm layers, and 1 - decay of the moving averages of a method: 0.001 for the 131,072
    steps of a full run, inversely more for a shorter one, at most PyTorch's 0.1.
    """
    return min(0.1, max(0.001, 0.001 * 131_072 / steps))


def linear_ramp(step: int, steps: int, fraction: float) -> float:
    """Linear increase from 0 to 1 over a fraction of training: min(1, s / (fraction · S))."""
    length = fraction * steps
    return 1.0 if step >= length else step / length


def tsa_threshold(kind: Annealing, step: int, steps: int, classes: int) -> float:
    """Threshold of training signal annealing: α (1 - 1/K) + 1/K, which rises from 1/K for K classes to 1.

    α is s/S ("linear"), e^(5 (s/S - 1)) ("exp": rises late) or 1 - e^(-5 s/S) ("log": rises early). "none" is an
    infinite threshold.
    """
    done = step / steps
    if kind == "none":
        return math.inf
    alpha = {"linear": done, "exp": math.exp(5 * (done - 1)), "log": 1 - math.exp(-5 * done)}[kind]
    return alpha * (1 - 1 / classes) + 1 / classes
