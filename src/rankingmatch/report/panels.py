"""Curves as plain numbers: a panel is a title, a unit and lines, drawn by the page and by matplotlib alike."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankingmatch.report.subject import Subject

MEGABYTE = 2**20
LINES_OF_CLASSES = 12  # with more classes their shares are a heat map instead of lines
MOST_POINTS = 2000  # of a line of steps; more are averaged in bins


@dataclass(frozen=True)
class Line:
    """A line; None where there is no number."""

    name: str
    x: list[float]
    y: list[float | None]


@dataclass(frozen=True)
class Panel:
    """Lines over steps, epochs or batches; `grid` is a heat map (classes × x) instead of lines."""

    key: str
    title: str
    unit: str
    lines: list[Line]
    per: str = "step"
    logarithmic: bool = False
    grid: list[list[float | None]] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values; numbers with six digits, which is what a screen can show."""
        lines = [{"name": line.name, "x": line.x, "y": [_short(value) for value in line.y]} for line in self.lines]
        grid = None if self.grid is None else [[_short(value) for value in row] for row in self.grid]
        return {
            "key": self.key,
            "title": self.title,
            "unit": self.unit,
            "per": self.per,
            "log": self.logarithmic,
            "lines": lines,
            "grid": grid,
        }


def _short(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")


def training_panels(subject: Subject) -> list[Panel]:
    """The curves of one run: losses, errors, pseudo-labels, learning rate, costs."""
    if not subject.history:
        return []
    parts = [key for key in _keys(subject) if key.startswith("loss_")]
    names = sorted(parts, key=lambda key: key == "loss_total")
    panels = [
        Panel("losses", "Losses", "loss", [_line(subject, key, _loss_name(key)) for key in names]),
        Panel(
            "errors",
            "Error",
            "error %",
            [_line(subject, "test_error", "test"), _line(subject, "val_error", "validation")],
        ),
        Panel(
            "pseudo_labels",
            "Pseudo-labels",
            "%",
            [
                _line(subject, "confident", "confident", 100),
                _line(subject, "purity", "right, of the confident", 100),
            ],
        ),
        class_share_panel(subject),
        Panel("learning_rate", "Learning rate", "η", [_line(subject, "learning_rate", "learning rate")]),
        *cost_panels([subject]),
    ]
    return _with_numbers(panels)


def class_share_panel(subject: Subject) -> Panel:
    """Each class's share of the confident pseudo-labels: one that takes all others in is seen at once."""
    x = [float(line["step"]) for line in subject.history]
    shares = [line.get("class_shares") for line in subject.history]
    rows = [[None if row is None else 100 * row[label] for row in shares] for label in range(len(subject.classes))]
    lines = [Line(name, x, row) for name, row in zip(subject.classes, rows, strict=True)]
    grid = rows if len(rows) > LINES_OF_CLASSES else None
    return Panel("class_shares", "Share of each class among the pseudo-labels", "%", lines, grid=grid)


def cost_panels(subjects: list[Subject]) -> list[Panel]:
    """Time and memory as Figures 3 and 12-14 have them: epoch by epoch, and batch by batch where it was measured."""
    seconds = Panel("epoch_seconds", "Time per epoch", "seconds", [_epoch_seconds(s) for s in subjects], "epoch")
    memory = Panel("epoch_memory", "Peak memory per epoch", "MB", [_epoch_memory(s) for s in subjects], "epoch")
    measured = [subject for subject in subjects if len(subject.step_costs)]
    by_batch = [
        Panel(
            "batch_seconds",
            "Time per batch",
            "milliseconds",
            [binned(s.name, s.step_costs[:, 0], 1000 * s.step_costs[:, 1]) for s in measured],
            "batch",
        ),
        Panel(
            "batch_memory",
            "Peak memory per batch",
            "MB",
            [binned(s.name, s.step_costs[:, 0], s.step_costs[:, 2] / MEGABYTE) for s in measured],
            "batch",
        ),
    ]
    return _with_numbers([seconds, memory, *by_batch])


def comparison_panels(subjects: list[Subject]) -> list[Panel]:
    """The curves of several runs laid over each other, a panel for each quantity."""
    parts = sorted({key for subject in subjects for key in _keys(subject) if key.startswith("loss_")})
    quantities: list[tuple[str, str, str, float]] = [
        ("test_error", "Test error", "error %", 1),
        ("val_error", "Validation error", "error %", 1),
        ("confident", "Confident pseudo-labels", "%", 100),
        ("purity", "Right pseudo-labels, of the confident", "%", 100),
        *((key, f"Loss: {_loss_name(key)}", "loss", 1.0) for key in parts),
        ("learning_rate", "Learning rate", "η", 1),
    ]
    panels = [
        Panel(key, title, unit, [_line(subject, key, subject.name, factor) for subject in subjects])
        for key, title, unit, factor in quantities
    ]
    return [*_with_numbers(panels), *cost_panels(subjects)]


def binned(name: str, x: np.ndarray, y: np.ndarray) -> Line:
    """A line of at most MOST_POINTS points: means of equal stretches."""
    length = -(-len(x) // MOST_POINTS)
    starts = np.arange(0, len(x), length)
    counts = np.diff(np.append(starts, len(x)))
    return Line(name, x[starts].tolist(), (np.add.reduceat(y, starts) / counts).tolist())


def _keys(subject: Subject) -> dict[str, None]:
    """The keys of a history in the order in which they first appear."""
    return {key: None for line in subject.history for key in line}


def _loss_name(key: str) -> str:
    return key.removeprefix("loss_").replace("_", " ")


def _line(subject: Subject, key: str, name: str, factor: float = 1) -> Line:
    values = [line.get(key) for line in subject.history]
    y = [factor * value if isinstance(value, (int, float)) else None for value in values]
    return Line(name, [float(line["step"]) for line in subject.history], y)


def _epoch_seconds(subject: Subject) -> Line:
    """From the mean of a step where it was logged, else from the clock, evaluations included."""
    y: list[float | None] = []
    step, clock = 0, 0.0
    for line in subject.history:
        count, mean = line["step"] - step, line.get("step_seconds")
        y.append(count * mean if mean is not None else line["seconds"] - clock)
        step, clock = line["step"], line["seconds"]
    return Line(subject.name, [float(number + 1) for number in range(len(y))], y)


def _epoch_memory(subject: Subject) -> Line:
    y = [line["memory"] / MEGABYTE if "memory" in line else None for line in subject.history]
    return Line(subject.name, [float(number + 1) for number in range(len(y))], y)


def _with_numbers(panels: list[Panel]) -> list[Panel]:
    """The panels without lines that have no number, and without those that have no line then."""
    kept = []
    for panel in panels:
        lines = [line for line in panel.lines if any(value is not None for value in line.y)]
        if lines:
            grid = panel.grid if len(lines) == len(panel.lines) else None
            kept.append(Panel(panel.key, panel.title, panel.unit, lines, panel.per, panel.logarithmic, grid))
    return kept
