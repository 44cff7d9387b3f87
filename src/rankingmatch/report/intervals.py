"""Confidence intervals of measured errors."""

import math

import numpy as np

Z95 = 1.959964  # 97.5 % quantile of the normal distribution


def wilson_interval(wrong: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of an error, in percent."""
    if count == 0:
        return 0.0, 100.0
    share, weight = wrong / count, Z95**2 / count
    center = (share + weight / 2) / (1 + weight)
    half = Z95 * math.sqrt(share * (1 - share) / count + weight / (4 * count)) / (1 + weight)
    return 100 * max(0.0, center - half), 100 * min(1.0, center + half)


def paired_difference(wrong: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Mean and 95 % half-width, in percentage points, of the difference of two errors on the same images."""
    differences = wrong.astype(float) - other.astype(float)
    count = len(differences)
    half = Z95 * differences.std(ddof=1) / math.sqrt(count) if count > 1 else math.inf
    return 100 * float(differences.mean()), 100 * half


def mean_and_interval(values: np.ndarray) -> tuple[float, float | None]:
    """Mean and 95 % half-width by Student's t; None for a single value."""
    if len(values) < 2:
        return float(values.mean()), None
    from scipy.special import stdtrit  # Student's quantile; importing scipy.stats takes seconds

    half = float(stdtrit(len(values) - 1, 0.975)) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean()), float(half)
