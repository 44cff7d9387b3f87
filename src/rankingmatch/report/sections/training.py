"""Training: losses, errors, pseudo-labels, learning rate, time and memory over the steps, as panels of curves.

The page draws the panels with Plotly, and `figures` with matplotlib.
"""

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from rankingmatch.report.run_data import RunData
from rankingmatch.report.sections import ReportInput, Section

MEGABYTE = 2**20
MOST_CLASS_CURVES = 12  # with more classes, their shares are a heat map instead of curves
MOST_POINTS = 2000  # of a curve; longer ones are averaged in bins


class CurveData(TypedDict):
    """A curve; y is None where there is no number."""

    name: str
    x: list[float]
    y: list[float | None]


class PanelData(TypedDict):
    """One plot; `heat_map`, if given, is (curves, x) values to be drawn instead of curves."""

    key: str
    title: str
    x_label: str
    y_label: str
    curves: list[CurveData]
    heat_map: list[list[float | None]] | None


def training_data(report: ReportInput) -> list[PanelData]:
    """The curves of one run, or the curves of several runs in the same plots."""
    if len(report.runs) == 1:
        return training_panels(report.runs[0])
    detailed = (report.runs[index] for index in report.detailed)
    shares = _drawn([class_share_panel(run, f"Share of each class: {run.name}") for run in detailed])
    for number, panel in enumerate(shares):
        panel["key"] += f"_{number}"
    return [*comparison_panels(report.runs), *shares]


def training_panels(run: RunData) -> list[PanelData]:
    """The curves of one run: losses, errors, pseudo-labels, learning rate, costs."""
    losses = sorted(_losses([run]), key=lambda key: key == "loss_total")
    confident = _recorded(run, "confident", "confident, of all", 100)
    correct = _recorded(run, "purity", "correct, of the confident", 100)
    errors = [_recorded(run, "test_error", "test"), _recorded(run, "val_error", "validation")]
    panels = [
        _panel("losses", "Losses", "loss", [_recorded(run, key, _loss_name(key)) for key in losses]),
        _panel("errors", "Error", "error %", errors),
        _panel("pseudo_labels", "Pseudo-labels", "%", [confident, correct]),
        class_share_panel(run, "Share of each class among the pseudo-labels"),
        _panel("learning_rate", "Learning rate", "η", [_recorded(run, "learning_rate", "learning rate")]),
    ]
    return _drawn([*panels, *cost_panels([run])])


def comparison_panels(runs: list[RunData]) -> list[PanelData]:
    """The curves of several runs, a panel for each quantity with a curve for each run."""
    quantities = [
        ("test_error", "Test error", "error %", 1),
        ("val_error", "Validation error", "error %", 1),
        ("confident", "Confident pseudo-labels", "% of all", 100),
        ("purity", "Correct pseudo-labels", "% of the confident", 100),
        *((key, f"Loss: {_loss_name(key)}", "loss", 1) for key in sorted(_losses(runs))),
        ("learning_rate", "Learning rate", "η", 1),
    ]
    panels = [
        _panel(key, title, y_label, [_recorded(run, key, run.name, factor) for run in runs])
        for key, title, y_label, factor in quantities
    ]
    return _drawn([*panels, *cost_panels(runs)])


def class_share_panel(run: RunData, title: str) -> PanelData:
    """Each class's share of the confident pseudo-labels: shows if one class takes over."""
    x, shares = [float(row["step"]) for row in run.history], [row.get("class_shares") for row in run.history]
    curves = [
        _curve(name, x, [None if row is None else 100 * row[label] for row in shares])
        for label, name in enumerate(run.classes)
    ]
    panel = _panel("class_shares", title, "%", curves)
    if len(curves) > MOST_CLASS_CURVES:
        panel["heat_map"] = [curve["y"] for curve in panel["curves"]]
    return panel


def cost_panels(runs: list[RunData]) -> list[PanelData]:
    """Time and memory as in Figures 3 and 12-14: between evaluations, and by batch where it was measured."""
    seconds, memory = [], []
    for run in runs:
        x = [float(number + 1) for number in range(len(run.history))]
        steps = np.diff([row["step"] for row in run.history], prepend=0).tolist()
        y = [count * row["step_seconds"] for count, row in zip(steps, run.history, strict=True)]
        seconds.append(_curve(run.name, x, y))
        memory.append(_curve(run.name, x, [row["memory"] / MEGABYTE for row in run.history]))
    costs = [(run.name, *run.step_costs.T) for run in runs if len(run.step_costs)]
    batch_seconds = [binned(name, step, 1000 * taken) for name, step, taken, _ in costs]
    batch_memory = [binned(name, step, peak / MEGABYTE) for name, step, _, peak in costs]
    between = "between two evaluations"  # an epoch, if evaluations are not set otherwise
    return [
        _panel("epoch_seconds", f"Time {between}", "seconds", seconds, "evaluation"),
        _panel("epoch_memory", f"Peak memory {between}", "MB", memory, "evaluation"),
        _panel("batch_seconds", "Time per batch", "milliseconds", batch_seconds, "batch"),
        _panel("batch_memory", "Peak memory per batch", "MB", batch_memory, "batch"),
    ]


def binned(name: str, x: np.ndarray, y: np.ndarray) -> CurveData:
    """A curve of at most MOST_POINTS points: the means of bins of equal length."""
    length = -(-len(x) // MOST_POINTS)
    starts = np.arange(0, len(x), length)
    counts = np.diff(np.append(starts, len(x)))
    return _curve(name, x[starts].tolist(), (np.add.reduceat(y, starts) / counts).tolist())


def _losses(runs: list[RunData]) -> dict[str, None]:
    """The keys of the losses, in the order in which they first appear."""
    return {key: None for run in runs for row in run.history for key in row if key.startswith("loss_")}


def _loss_name(key: str) -> str:
    return key.removeprefix("loss_").replace("_", " ")


def _recorded(run: RunData, key: str, name: str, factor: float = 1) -> CurveData:
    values: list[Any] = [row.get(key) for row in run.history]
    y = [factor * value if isinstance(value, (int, float)) else None for value in values]
    return _curve(name, [float(row["step"]) for row in run.history], y)


def _curve(name: str, x: list[float], y: Sequence[float | None]) -> CurveData:
    """A curve whose numbers have six digits, which is what a screen can show."""
    finite = [None if value is None or not np.isfinite(value) else float(f"{value:.6g}") for value in y]
    return {"name": name, "x": x, "y": finite}


def _panel(key: str, title: str, y_label: str, curves: list[CurveData], x_label: str = "step") -> PanelData:
    """A panel of the curves that have a number."""
    kept = [curve for curve in curves if any(value is not None for value in curve["y"])]
    return {"key": key, "title": title, "x_label": x_label, "y_label": y_label, "curves": kept, "heat_map": None}


def _drawn(panels: list[PanelData]) -> list[PanelData]:
    return [panel for panel in panels if panel["curves"]]


SECTION = Section("training", "Training", training_data)
