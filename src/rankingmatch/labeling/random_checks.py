"""Random checks: images drawn at random whose labels are never trained on; they measure the error of the model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rankingmatch.core.randomness import Purpose, numpy_generator

CHECK_EVERY = 5  # one of five images is a random check
SHARE, MOST = 0.2, 1000  # of the folder, and images
LABELS_PER_CLASS = 8  # suggested before training
TAIL = (1 - 0.95) / 2  # probability on each side of the interval
HARDLY = 1.0  # percentage points: a smaller gain from twice as many labels is hardly worth them
FEW_CHECKS, MANY_CHECKS = 20, 50  # one image of 20 is 5 percentage points


def draw_checks(n: int, seed: int) -> np.ndarray:
    """The images of a folder of n that are random checks, in the order in which they are shown.

    They are a simple random sample of all images, whatever is selected for training, as long as they are never trained
    on: they are not selectable from the beginning, not offered for acceptance, and those that had a label before are
    left out without replacement.
    """
    count = min(MOST, int(SHARE * n))
    return numpy_generator(seed, Purpose.RANDOM_CHECKS).permutation(n)[:count].astype(np.int64)


def error_interval(wrong: int, checks: int) -> tuple[float, float]:
    """Clopper and Pearson's interval in percent: it contains the true error in at least 95% of cases."""
    from scipy.special import betaincinv  # importing scipy.stats takes seconds

    low = 0.0 if wrong == 0 else float(betaincinv(wrong, checks - wrong + 1, TAIL))
    high = 1.0 if wrong == checks else float(betaincinv(wrong + 1, checks - wrong, 1 - TAIL))
    return 100 * low, 100 * high


def error_point(labels: int, wrong: int, checks: int) -> dict[str, float]:
    """A point of the curve: the number of labels, the error with its interval in percent, and the number of checks."""
    low, high = error_interval(wrong, checks)
    values = {"labels": labels, "error": 100 * wrong / checks, "low": low, "high": high, "checks": checks}
    return {name: round(value, 2) for name, value in values.items()}


def advice(curve: Sequence[Mapping[str, float]]) -> str:
    """A sentence on whether more labels are likely to help, from points in the order of labels."""
    if not curve or curve[-1]["checks"] < FEW_CHECKS:
        return "Keep labeling: there are too few random checks yet to say how good the model is."
    last = curve[-1]
    earlier = [point for point in curve if point["labels"] <= last["labels"] / 2]
    if not earlier:
        interval = f"between {last['low']:.0f}% and {last['high']:.0f}%"
        return f"The error is {interval}; keep labeling to see whether it falls."
    gain = earlier[-1]["error"] - last["error"]
    latest = f"The last {last['labels'] - earlier[-1]['labels']:.0f} labels"
    if gain < HARDLY and last["checks"] < MANY_CHECKS:
        return f"{latest} did not lower the error measurably, but there are only {last['checks']:.0f} random checks."
    if gain < HARDLY:
        return f"{latest} hardly lowered the error: it is time to train."
    return f"{latest} lowered the error by {gain:.0f} percentage points: more will help."


def enough(counts: Mapping[str, int]) -> dict[str, Any]:
    """How many labels for training there are, from the counts of the classes, how many are suggested, and why."""
    have, suggested = sum(counts.values()), LABELS_PER_CLASS * max(2, len(counts))
    name, fewest = min(counts.items(), key=lambda item: item[1], default=("", 0))
    if len(counts) < 2:
        why = "At least two classes are needed."
    elif fewest < 2:
        suggested = max(suggested, have + 1)
        have_few = "no label" if fewest == 0 else "only one label"
        why = f"The class “{name}” has {have_few}; two of each class are needed."
    elif have < suggested:
        why = f"About {LABELS_PER_CLASS} labels per class are a good start."
    else:
        why = "There are enough labels to train."
    return {"have": have, "suggested": suggested, "why": why}
