"""Overview: notes, headline numbers, the comparison of several runs, and how to repeat each run."""

from typing import TypedDict

from rankingmatch.report.comparison import FoldDifference, Gain, fold_differences, gain_over_supervised
from rankingmatch.report.curves import PanelData, comparison_panels, training_panels
from rankingmatch.report.notes import Note, gather_notes
from rankingmatch.report.run_data import RunData, prediction_metrics
from rankingmatch.report.section import ReportInput, Section

HEADLINE_PANELS = {"errors", "pseudo_labels", "test_error", "confident"}


class ErrorEstimate(TypedDict):
    """The error of the model's predictions, in percent."""

    subset: str
    images: int
    error: float
    balanced_error: float | None  # mean over the classes
    interval: tuple[float, float]
    calibration_error: float


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
    return {
        "notes": gather_notes(runs),
        "runs": [run_overview(run, runs, index in report.detailed) for index, run in enumerate(runs)],
        "panels": [panel.to_data() for panel in panels if panel.key in HEADLINE_PANELS],
        "fold_differences": fold_differences(runs),
    }


def run_overview(run: RunData, runs: list[RunData], detailed: bool = True) -> RunOverview:
    """Headline numbers of a run, compared with the other runs."""
    last = run.history[-1] if run.history else {}
    return {
        "measured": measured_error(run) if detailed else None,
        "gain": gain_over_supervised(run, runs),
        "test_error": run.test_error,
        "test_balanced_error": run.test.balanced_error if run.test else None,
        "val_error": run.val.error if run.val else None,
        "step": run.step,
        "steps": run.steps,
        "diverged_at": run.diverged_at,
        "seconds": run.seconds,
        "memory": max((row["memory"] for row in run.history if "memory" in row), default=None),
        "confident": last.get("confident"),
        "purity": last.get("purity"),
        "weights": run.weights,
        "command": run.command,
        "settings": {name: str(value) for name, value in run.settings.items()},
        "environment": {name: str(value) for name, value in run.environment.items()},
    }


def measured_error(run: RunData) -> ErrorEstimate | None:
    """The error of the run's model with its interval; None without a model or without labels."""
    metrics = prediction_metrics(run.evaluated) if run.evaluated else None
    if run.evaluated is None or metrics is None:
        return None
    return {
        "subset": run.evaluated.subset,
        "images": metrics.count,
        "error": metrics.errors.error,
        "balanced_error": metrics.errors.balanced_error,
        "interval": metrics.interval,
        "calibration_error": metrics.calibration_error,
    }


SECTION = Section("overview", "Overview", overview_data)
