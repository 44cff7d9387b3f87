"""Comparisons of runs: which are folds of each other, and how their errors differ."""

from typing import TypedDict

import numpy as np

from rankingmatch.report.intervals import mean_and_interval, paired_difference
from rankingmatch.report.run_data import RunData, prediction_metrics

BASELINE = "supervised"


class FoldDifference(TypedDict):
    """A method's test error minus the baseline's, in percentage points."""

    dataset: str
    labels: int
    method: str
    baseline: str
    folds: int
    differences: dict[str, float]  # by seed
    mean: float
    half_width: float | None  # of the 95 % interval; None for one fold


class Gain(TypedDict):
    """How much lower a run's error is than that of the supervised run with the same labels."""

    points: float  # percentage points; positive is better than supervised
    half_width: float | None  # of the 95 % interval; None if the runs were not evaluated on the same images
    supervised_error: float


def group_folds(runs: list[RunData]) -> dict[tuple[str, str, int], list[RunData]]:
    """The runs by dataset, method and labels, in the order in which they are given."""
    groups: dict[tuple[str, str, int], list[RunData]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    return groups


def first_folds(runs: list[RunData], largest: int) -> list[int]:
    """The index of the first run of each group, at most `largest` of them."""
    first: dict[tuple[str, str, int], int] = {}
    for index, run in enumerate(runs):
        first.setdefault(run.group, index)
    return list(first.values())[:largest]


def fold_differences(runs: list[RunData]) -> list[FoldDifference]:
    """Each group's test error minus the baseline's on the same dataset, labels and seeds.

    The baseline is the supervised group, or the first group if there is none.
    """
    rows: list[FoldDifference] = []
    groups = group_folds(runs)
    for (dataset, method, labels), folds in groups.items():
        comparable = [key for key in groups if (key[0], key[2]) == (dataset, labels)]
        supervised = (dataset, BASELINE, labels)
        baseline = supervised if supervised in comparable else comparable[0]
        if baseline == (dataset, method, labels):
            continue
        differences = _by_seed(folds, groups[baseline])
        if differences:
            mean, half_width = mean_and_interval(np.array(list(differences.values())))
            rows.append(
                {
                    "dataset": dataset,
                    "labels": labels,
                    "method": method,
                    "baseline": baseline[1],
                    "folds": len(differences),
                    "differences": {str(seed): round(value, 4) for seed, value in differences.items()},
                    "mean": mean,
                    "half_width": half_width,
                }
            )
    return rows


def _by_seed(folds: list[RunData], baseline: list[RunData]) -> dict[int, float]:
    """Test error of each fold minus that of the baseline run with the same seed."""
    errors = {run.seed: run.test_error for run in baseline}
    return {
        run.seed: run.test_error - other
        for run in folds
        if run.test_error is not None and (other := errors.get(run.seed)) is not None
    }


def gain_over_supervised(run: RunData, runs: list[RunData]) -> Gain | None:
    """The gain over the supervised run with the same dataset, labels and seed; None if there is none."""
    if run.method == BASELINE:
        return None
    for other in runs:
        if (*other.group, other.seed) == (run.dataset, BASELINE, run.labels, run.seed):
            gain = _paired_gain(run, other) or _gain(run, other)
            if gain is not None:
                return gain
    return None


def _paired_gain(run: RunData, supervised: RunData) -> Gain | None:
    """The gain measured on the same images, if both runs have predictions for them."""
    mine = prediction_metrics(run.evaluated) if run.evaluated else None
    theirs = prediction_metrics(supervised.evaluated) if supervised.evaluated else None
    if mine is None or theirs is None or len(mine.wrong) != len(theirs.wrong):
        return None
    points, half_width = paired_difference(theirs.wrong, mine.wrong)
    return {"points": points, "half_width": half_width, "supervised_error": theirs.errors.error}


def _gain(run: RunData, supervised: RunData) -> Gain | None:
    """The gain from the recorded test errors."""
    if run.test_error is None or supervised.test_error is None:
        return None
    points = supervised.test_error - run.test_error
    return {"points": points, "half_width": None, "supervised_error": supervised.test_error}
