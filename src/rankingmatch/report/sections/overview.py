"""Overview: notes, headline numbers, the comparison of several runs, and how to repeat each run."""

from typing import TypedDict

import numpy as np

from rankingmatch.report.run_data import (
    ErrorEstimate,
    RunData,
    Status,
    mean_and_interval,
    paired_difference,
    prediction_metrics,
)
from rankingmatch.report.sections import ReportInput, Section
from rankingmatch.report.sections.training import PanelData, comparison_panels, training_panels

BASELINE = "supervised"
HEADLINE_PANELS = {"errors", "pseudo_labels", "test_error", "confident"}


class Note(TypedDict):
    """What a reader must know before reading the numbers, and the runs it is about; no names if it is about all."""

    text: str
    status: str
    names: list[str]


class Gain(TypedDict):
    """How much lower a run's error is than that of the supervised run with the same labels."""

    points: float  # percentage points; positive is better than supervised
    half_width: float | None  # of the 95 % interval; None if the runs were not evaluated on the same images
    supervised_error: float


class RunOverview(TypedDict):
    """Headline numbers of a run, and what is needed to repeat it; None where it is not known."""

    measured: ErrorEstimate | None
    gain: Gain | None
    test_error: float | None
    test_balanced_error: float | None
    val_error: float | None
    step: int
    steps: int
    diverged_at: int | None
    seconds: float | None
    memory: int | None  # bytes
    confident: float | None  # share of the pseudo-labels
    purity: float | None  # share of the confident pseudo-labels that are correct
    weights: str
    command: str
    settings: dict[str, str]
    environment: dict[str, str]


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


class OverviewData(TypedDict):
    """What overview.js draws."""

    notes: list[Note]
    runs: list[RunOverview]
    panels: list[PanelData]
    fold_differences: list[FoldDifference]


def overview_data(report: ReportInput) -> OverviewData:
    """Headline numbers of every run."""
    runs = report.runs
    panels = training_panels(runs[0]) if len(runs) == 1 else comparison_panels(runs)
    about: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for text in notes_of(run):
            about.setdefault((text, run.status.value), []).append(run.name)
    return {
        "notes": [
            {"text": text, "status": status, "names": names if len(names) < len(runs) else []}
            for (text, status), names in about.items()
        ],
        "runs": [run_overview(run, runs, index in report.detailed) for index, run in enumerate(runs)],
        "panels": [panel for panel in panels if panel["key"] in HEADLINE_PANELS],
        "fold_differences": fold_differences(runs),
    }


def notes_of(run: RunData) -> list[str]:
    """How the run ended, and what cannot be shown."""
    notes = []
    if run.status is Status.DIVERGED:
        notes.append(
            f"Training stopped at step {run.diverged_at}: '{run.diverged_part}' was no longer finite (NaN). "
            "There is no final model."
        )
    elif run.status is Status.UNDER_WAY:
        notes.append(f"This run is not finished: {run.step:,} of {run.steps:,} steps so far.")
    # The run's own notes say what is shown where there are no test images.
    replaced = run.evaluated is not None and run.evaluated.subset != "test"
    if not run.history:
        notes.append("There is no evaluation yet, so there are no curves.")
    elif all(row.get("test_error") is None for row in run.history) and not replaced:
        notes.append("There are no test labels, so there is no test error.")
    return [*notes, *run.notes]


def run_overview(run: RunData, runs: list[RunData], detailed: bool) -> RunOverview:
    """Headline numbers of a run, compared with the other runs."""
    last = run.history[-1] if run.history else {}
    metrics = prediction_metrics(run.evaluated) if detailed else None
    return {
        "measured": metrics.estimate if metrics else None,
        "gain": gain_over_supervised(run, runs),
        "test_error": run.test_error,
        "test_balanced_error": run.test.balanced_error if run.test else None,
        "val_error": run.val.error if run.val else None,
        "step": run.step,
        "steps": run.steps,
        "diverged_at": run.diverged_at,
        "seconds": run.seconds,
        "memory": max((row["memory"] for row in run.history), default=None),
        "confident": last.get("confident"),
        "purity": last.get("purity"),
        "weights": run.weights,
        "command": run.command,
        "settings": {name: str(value) for name, value in run.settings.items()},
        "environment": {name: str(value) for name, value in run.environment.items()},
    }


def gain_over_supervised(run: RunData, runs: list[RunData]) -> Gain | None:
    """The gain over the supervised run with the same dataset, labels and seed; None if there is none.

    It is measured on the same images if both runs have predictions for them, or else from the recorded test errors.
    """
    for other in runs if run.method != BASELINE else []:
        if (*other.group, other.seed) != (run.dataset, BASELINE, run.labels, run.seed):
            continue
        mine, theirs = prediction_metrics(run.evaluated), prediction_metrics(other.evaluated)
        if mine and theirs and len(mine.wrong) == len(theirs.wrong):
            points, half_width = paired_difference(theirs.wrong, mine.wrong)
            return {"points": points, "half_width": half_width, "supervised_error": theirs.estimate["error"]}
        if run.test_error is not None and other.test_error is not None:
            points = other.test_error - run.test_error
            return {"points": points, "half_width": None, "supervised_error": other.test_error}
    return None


def fold_differences(runs: list[RunData]) -> list[FoldDifference]:
    """Each group's test error minus the baseline's on the same dataset, labels and seeds.

    The baseline is the supervised group, or the first group if there is none.
    """
    rows: list[FoldDifference] = []
    groups: dict[tuple[str, str, int], dict[int, float]] = {}  # test errors by seed
    for run in runs:
        groups.setdefault(run.group, {}).update({run.seed: run.test_error} if run.test_error is not None else {})
    for (dataset, method, labels), errors in groups.items():
        comparable = [name for data, name, count in groups if (data, count) == (dataset, labels)]
        baseline = BASELINE if BASELINE in comparable else comparable[0]
        others = groups[dataset, baseline, labels]
        differences = {str(seed): error - others[seed] for seed, error in errors.items() if seed in others}
        if baseline == method or not differences:
            continue
        mean, half_width = mean_and_interval(np.array(list(differences.values())))
        rows.append(
            {
                "dataset": dataset,
                "labels": labels,
                "method": method,
                "baseline": baseline,
                "folds": len(differences),
                "differences": {seed: round(value, 4) for seed, value in differences.items()},
                "mean": mean,
                "half_width": half_width,
            }
        )
    return rows


SECTION = Section("overview", "Overview", overview_data)
