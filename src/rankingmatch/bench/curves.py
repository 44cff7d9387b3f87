"""Curves of the cost of training, as in the paper's Appendix F, and of the error against the number of labels."""

from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.bench.recipe import MEMORY, SECONDS
from rankingmatch.bench.tables import Figure

UNITS = {
    (SECONDS, "epoch"): "seconds per epoch",
    (SECONDS, "batch"): "milliseconds per batch",
    (MEMORY, "epoch"): "peak memory (MB)",
    (MEMORY, "batch"): "peak memory (MB)",
}


def draw_curves(name: str, curves: dict[str, dict[str, dict[str, np.ndarray]]], per: str, directory: Path) -> None:
    """Write a figure for each quantity, with a panel for each column and a line for each row."""
    from matplotlib.figure import Figure

    for quantity, columns in curves.items():
        figure = Figure(figsize=(4 * len(columns), 3), layout="constrained")
        for axes, (column, rows) in zip(
            figure.subplots(1, len(columns), squeeze=False)[0], columns.items(), strict=True
        ):
            for row, values in rows.items():
                axes.plot(np.arange(1, len(values) + 1), values, label=row, linewidth=1)
            axes.set_title(column, fontsize=10)
            axes.set_xlabel(per)
            axes.set_ylabel(UNITS[quantity, per])
            axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        for ending in ("svg", "png"):
            figure.savefig(directory / f"{name}-{quantity}.{ending}", dpi=150)


COLORS = ("#9aa3ad", "#64748b", "#7c3aed", "#0f766e", "#2563eb", "#ca8a04", "#db2777")
LAST_COLOR = "#c2410c"  # of the last row, which is the one that the others are compared with
MARKERS = "osD^vPX"


def draw_errors(name: str, errors: dict[str, dict[str, dict[int, Figure]]], directory: Path) -> None:
    """Write a figure for each dataset: the error against the number of labels."""
    for dataset, rows in errors.items():
        canvas, axes = _error_lines(dataset, rows)
        numbers = sorted({number for figures in rows.values() for number in figures})
        axes.set_xscale("log")
        axes.set_xticks(numbers, [str(number) for number in numbers])
        axes.minorticks_off()
        axes.set(xlabel="labeled images")
        _save(canvas, directory / (name if len(errors) == 1 else f"{name}-{dataset}"))


def draw_learning(name: str, curves: dict[str, dict[str, dict[int, Figure]]], directory: Path) -> None:
    """Write a figure for each column: the error against the steps of training."""
    for column, rows in curves.items():
        canvas, axes = _error_lines(column, rows)
        axes.set(xlabel="steps of training")
        axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))  # beside the lines
        title = column.replace(", ", "-").replace(" ", "-")
        _save(canvas, directory / (name if len(curves) == 1 else f"{name}-{title}"))


def _error_lines(title: str, rows: dict[str, dict[int, Figure]]) -> tuple[Any, Any]:
    """A line for each row, with a band of one standard deviation over the folds."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(6.4, 4), layout="constrained")
    axes = canvas.subplots()
    for index, (row, figures) in enumerate(rows.items()):
        color = LAST_COLOR if index == len(rows) - 1 else COLORS[index % len(COLORS)]
        numbers = np.array(sorted(figures))
        mean = np.array([figures[number].mean for number in numbers], dtype=float)
        deviation = np.array([figures[number].deviation or 0.0 for number in numbers])
        marker = MARKERS[index % len(MARKERS)]
        axes.plot(numbers, mean, color=color, marker=marker, markersize=4, linewidth=2, label=row)
        axes.fill_between(numbers, mean - deviation, mean + deviation, color=color, alpha=0.12, linewidth=0)
    axes.set_title(title, fontsize=11)
    axes.set(ylabel="error, %", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False, fontsize=9)
    return canvas, axes


def _save(canvas: Any, path: Path) -> None:
    """Write a figure as SVG and PNG; the same figure gives the same file."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "rankingmatch"}):
        canvas.savefig(f"{path}.svg", metadata={"Date": None})
    canvas.savefig(f"{path}.png", dpi=150)
