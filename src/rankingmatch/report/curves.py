"""Curves as plain numbers: panels that the page draws with Plotly and `figures` draws with matplotlib."""

from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np

from rankingmatch.report.run_data import RunData

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


@dataclass(frozen=True)
class Curve:
    """A curve; y is None where there is no number."""

    name: str
    x: list[float]
    y: list[float | None]

    @property
    def has_numbers(self) -> bool:
        """Whether there is anything to draw."""
        return any(value is not None for value in self.y)


@dataclass(frozen=True)
class Panel:
    """Curves over steps, epochs or batches in one plot."""

    key: str
    title: str
    y_label: str
    curves: list[Curve]
    x_label: str = "step"
    as_heat_map: bool = False

    def to_data(self) -> PanelData:
        """Plain values; numbers have six digits, which is what a screen can show."""
        curves: list[CurveData] = [
            {"name": curve.name, "x": curve.x, "y": [_six_digits(value) for value in curve.y]} for curve in self.curves
        ]
        return {
            "key": self.key,
            "title": self.title,
            "x_label": self.x_label,
            "y_label": self.y_label,
            "curves": curves,
            "heat_map": [curve["y"] for curve in curves] if self.as_heat_map else None,
        }


def _six_digits(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")


def training_panels(run: RunData) -> list[Panel]:
    """The curves of one run: losses, errors, pseudo-labels, learning rate, costs."""
    if not run.history:
        return []
    losses = sorted((key for key in _keys(run) if key.startswith("loss_")), key=lambda key: key == "loss_total")
    panels = [
        Panel("losses", "Losses", "loss", [_curve(run, key, _loss_name(key)) for key in losses]),
        Panel(
            "errors", "Error", "error %", [_curve(run, "test_error", "test"), _curve(run, "val_error", "validation")]
        ),
        Panel(
            "pseudo_labels",
            "Pseudo-labels",
            "%",
            [
                _curve(run, "confident", "confident, of all", 100),
                _curve(run, "purity", "correct, of the confident", 100),
            ],
        ),
        class_share_panel(run),
        Panel("learning_rate", "Learning rate", "η", [_curve(run, "learning_rate", "learning rate")]),
        *cost_panels([run]),
    ]
    return _with_numbers(panels)


def class_share_panel(run: RunData) -> Panel:
    """Each class's share of the confident pseudo-labels: shows if one class takes over."""
    x = [float(row["step"]) for row in run.history]
    shares = [row.get("class_shares") for row in run.history]
    curves = [
        Curve(name, x, [None if row is None else 100 * row[label] for row in shares])
        for label, name in enumerate(run.classes)
    ]
    title = "Share of each class among the pseudo-labels"
    return Panel("class_shares", title, "%", curves, as_heat_map=len(curves) > MOST_CLASS_CURVES)


def class_share_panels(runs: list[RunData]) -> list[Panel]:
    """The class shares of several runs, a panel for each run that recorded them."""
    recorded = [(run, panel) for run in runs if (panel := class_share_panel(run)) and _with_numbers([panel])]
    return [
        replace(panel, key=f"class_shares_{number}", title=f"Share of each class: {run.name}")
        for number, (run, panel) in enumerate(recorded)
    ]


def cost_panels(runs: list[RunData]) -> list[Panel]:
    """Time and memory as in Figures 3 and 12-14: between evaluations, and by batch where it was measured."""
    measured = [run for run in runs if len(run.step_costs)]
    steps = [run.step_costs[:, 0] for run in measured]
    milliseconds = [1000 * run.step_costs[:, 1] for run in measured]
    megabytes = [run.step_costs[:, 2] / MEGABYTE for run in measured]
    names = [run.name for run in measured]
    between = "between two evaluations"  # an epoch, if evaluations are not set otherwise
    return _with_numbers(
        [
            Panel("epoch_seconds", f"Time {between}", "seconds", [_epoch_seconds(run) for run in runs], "evaluation"),
            Panel("epoch_memory", f"Peak memory {between}", "MB", [_epoch_memory(run) for run in runs], "evaluation"),
            Panel(
                "batch_seconds",
                "Time per batch",
                "milliseconds",
                list(map(binned, names, steps, milliseconds)),
                "batch",
            ),
            Panel("batch_memory", "Peak memory per batch", "MB", list(map(binned, names, steps, megabytes)), "batch"),
        ]
    )


def comparison_panels(runs: list[RunData]) -> list[Panel]:
    """The curves of several runs, a panel for each quantity with a curve for each run."""
    losses = sorted({key for run in runs for key in _keys(run) if key.startswith("loss_")})
    quantities: list[tuple[str, str, str, float]] = [
        ("test_error", "Test error", "error %", 1),
        ("val_error", "Validation error", "error %", 1),
        ("confident", "Confident pseudo-labels", "% of all", 100),
        ("purity", "Correct pseudo-labels", "% of the confident", 100),
        *((key, f"Loss: {_loss_name(key)}", "loss", 1.0) for key in losses),
        ("learning_rate", "Learning rate", "η", 1),
    ]
    panels = [
        Panel(key, title, y_label, [_curve(run, key, run.name, factor) for run in runs])
        for key, title, y_label, factor in quantities
    ]
    return [*_with_numbers(panels), *cost_panels(runs)]


def binned(name: str, x: np.ndarray, y: np.ndarray) -> Curve:
    """A curve of at most MOST_POINTS points: the means of bins of equal length."""
    length = -(-len(x) // MOST_POINTS)
    starts = np.arange(0, len(x), length)
    counts = np.diff(np.append(starts, len(x)))
    return Curve(name, x[starts].tolist(), (np.add.reduceat(y, starts) / counts).tolist())


def _keys(run: RunData) -> dict[str, None]:
    """The keys of the history in the order in which they first appear."""
    return {key: None for row in run.history for key in row}


def _loss_name(key: str) -> str:
    return key.removeprefix("loss_").replace("_", " ")


def _curve(run: RunData, key: str, name: str, factor: float = 1) -> Curve:
    values = [row.get(key) for row in run.history]
    y = [factor * value if isinstance(value, (int, float)) else None for value in values]
    return Curve(name, [float(row["step"]) for row in run.history], y)


def _epoch_seconds(run: RunData) -> Curve:
    """From the mean time of a step where it was recorded, else from the clock, which includes evaluation."""
    y: list[float | None] = []
    step, clock = 0, 0.0
    for row in run.history:
        count, mean = row["step"] - step, row.get("step_seconds")
        y.append(count * mean if mean is not None else row["seconds"] - clock)
        step, clock = row["step"], row["seconds"]
    return _by_epoch(run.name, y)


def _epoch_memory(run: RunData) -> Curve:
    return _by_epoch(run.name, [row["memory"] / MEGABYTE if "memory" in row else None for row in run.history])


def _by_epoch(name: str, y: list[float | None]) -> Curve:
    return Curve(name, [float(number + 1) for number in range(len(y))], y)


def _with_numbers(panels: list[Panel]) -> list[Panel]:
    """The panels without curves that have no number, and without panels that have no curve left."""
    kept = [replace(panel, curves=[curve for curve in panel.curves if curve.has_numbers]) for panel in panels]
    return [panel for panel in kept if panel.curves]
