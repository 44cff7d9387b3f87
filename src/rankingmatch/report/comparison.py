"""Several runs side by side."""

from typing import Any

import numpy as np

from rankingmatch.report.classes import judge
from rankingmatch.report.statistics import mean_and_interval, paired_difference
from rankingmatch.report.subject import Status, Subject

BASELINE = "supervised"


def run_rows(subjects: list[Subject]) -> list[dict[str, Any]]:
    """A row of the comparison table for each run."""
    return [
        {
            "name": subject.name,
            "dataset": subject.dataset,
            "method": subject.method,
            "labels": subject.labels,
            "seed": subject.seed,
            "status": subject.status.value,
            "step": subject.diverged_at if subject.status is Status.DIVERGED else subject.step,
            "steps": subject.steps,
            "testError": subject.test_error,
            "valError": subject.val_error,
            "seconds": subject.seconds,
            "memory": max((line["memory"] for line in subject.history if "memory" in line), default=None),
        }
        for subject in subjects
    ]


def grouped(subjects: list[Subject]) -> dict[tuple[str, str, int], list[Subject]]:
    """Folds of the same dataset, method and labels together, in the order in which they come."""
    groups: dict[tuple[str, str, int], list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(subject.group, []).append(subject)
    return groups


def in_detail(subjects: list[Subject], most: int) -> list[int]:
    """The places of the runs whose outputs are shown: the first fold of each group, at most so many."""
    seen: set[tuple[str, str, int]] = set()
    places = []
    for place, subject in enumerate(subjects):
        if subject.group not in seen:
            seen.add(subject.group)
            places.append(place)
    return places[:most]


def fold_differences(subjects: list[Subject]) -> list[dict[str, Any]]:
    """Each group's test error against the baseline's of the same dataset, labels and seeds.

    The baseline is the supervised runs, or else the first group. A mean, and a 95 % interval over the folds.
    """
    rows: list[dict[str, Any]] = []
    groups = grouped(subjects)
    for (dataset, method, labels), folds in groups.items():
        rivals = {key: runs for key, runs in groups.items() if (key[0], key[2]) == (dataset, labels)}
        baseline = (dataset, BASELINE, labels) if (dataset, BASELINE, labels) in rivals else next(iter(rivals))
        if len(rivals) < 2 or baseline == (dataset, method, labels):
            continue
        theirs = {run.seed: run.test_error for run in groups[baseline]}
        gaps = {
            run.seed: run.test_error - other
            for run in folds
            if run.test_error is not None and (other := theirs.get(run.seed)) is not None
        }
        if gaps:
            mean, half = mean_and_interval(np.array(list(gaps.values())))
            rows.append(
                {
                    "dataset": dataset,
                    "labels": labels,
                    "method": method,
                    "baseline": baseline[1],
                    "folds": len(gaps),
                    "gaps": {str(seed): round(gap, 4) for seed, gap in gaps.items()},
                    "mean": mean,
                    "half": half,
                }
            )
    return rows


def gain_over_supervised(subject: Subject, subjects: list[Subject]) -> dict[str, Any] | None:
    """How much lower a run's error is than that of labels alone: same dataset, labels, seed and test images."""
    if subject.method == BASELINE:
        return None
    for other in subjects:
        if (other.dataset, other.method, other.labels, other.seed) != (
            subject.dataset,
            BASELINE,
            subject.labels,
            subject.seed,
        ):
            continue
        mine = judge(subject.judged) if subject.judged else None
        theirs = judge(other.judged) if other.judged else None
        if mine and theirs and len(mine.wrong) == len(theirs.wrong):
            gain, half = paired_difference(theirs.wrong, mine.wrong)
            return {"gain": gain, "half": half, "baseline": theirs.error, "name": other.name}
        if subject.test_error is not None and other.test_error is not None:
            return {
                "gain": other.test_error - subject.test_error,
                "half": None,
                "baseline": other.test_error,
                "name": other.name,
            }
    return None
