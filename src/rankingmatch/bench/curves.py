"""Curves of the cost of training, as in the paper's Appendix F, and of the error against labels or steps."""

from collections.abc import Iterable, Mapping
from itertools import cycle
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
COLORS = ("#9aa3ad", "#334155", "#7c3aed", "#0f766e", "#2563eb", "#ca8a04", "#db2777", "#65a30d", "#0891b2")
LAST_COLOR = "#c2410c"  # of the last row, if it is the one that the others are compared with
MARKERS = "osD^vPX*h"
# Rows with the same color in every figure of learning curves: the first colors, in this order.
USUAL_ROWS = (
    *("supervised", "fixmatch-ra", "rankingmatch-bm", "rankingmatch-bh", "flexmatch"),
    *("rankingmatch-ct", "rankingmatch-ba"),
)
MOST_TICKS = 10
PERCENTAGES = (1, 2, 5, 10, 20, 30, 40, 50, 70, 100)  # on a logarithmic axis


def draw_costs(name: str, curves: dict[str, dict[str, dict[str, np.ndarray]]], per: str, directory: Path) -> None:
    """Write a figure for each quantity, with a panel for each column and a line for each row."""
    from matplotlib.figure import Figure as Canvas

    for quantity, columns in curves.items():
        canvas = Canvas(figsize=(4 * len(columns), 3), layout="constrained")
        panels = canvas.subplots(1, len(columns), squeeze=False)[0]
        for axes, (column, rows) in zip(panels, columns.items(), strict=True):
            for row, values in rows.items():
                axes.plot(np.arange(1, len(values) + 1), values, label=row, linewidth=1)
            axes.set_title(column, fontsize=10)
            axes.set(xlabel=per, ylabel=UNITS[quantity, per])
            axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        _save(canvas, directory / f"{name}-{quantity}")


def draw_errors(name: str, errors: dict[str, dict[str, dict[int, Figure]]], directory: Path) -> None:
    """Write a figure for each dataset: the error against the number of labels."""
    for dataset, rows in errors.items():
        styles, last = _styles(rows), list(rows)[-1]
        styles[last] = (LAST_COLOR, styles[last][1])
        canvas, axes = _error_lines(dataset, rows, styles)
        numbers = _numbers(rows)
        axes.set_xscale("log")
        axes.set_xticks(numbers, [str(number) for number in numbers])
        axes.minorticks_off()
        axes.set(xlabel="labeled images")
        _save(canvas, directory / (name if len(errors) == 1 else f"{name}-{dataset}"))


def draw_learning(name: str, curves: dict[str, dict[str, dict[int, Figure]]], directory: Path) -> None:
    """Write a figure for each column: the error against the steps of training."""
    for column, rows in curves.items():
        styles = _styles([*USUAL_ROWS, *(row for row in rows if row not in USUAL_ROWS)])
        canvas, axes = _error_lines(column, rows, styles)
        if len(steps := _numbers(rows)) <= MOST_TICKS:
            axes.set_xticks(steps)
        axes.set_yscale("log")  # differences of small errors matter, too
        axes.set_yticks(PERCENTAGES, [str(number) for number in PERCENTAGES])
        axes.minorticks_off()
        low, high = axes.dataLim.intervaly
        axes.set(xlabel="steps of training", ylim=(0.9 * max(low, PERCENTAGES[0]), 1.1 * min(high, PERCENTAGES[-1])))
        _legend_beside(axes, rows)
        title = column.replace(", ", "-").replace(" ", "-")
        _save(canvas, directory / (name if len(curves) == 1 else f"{name}-{title}"))


def _numbers(rows: dict[str, dict[int, Figure]]) -> list[int]:
    """The numbers of labels, or the steps, at which there are errors."""
    return sorted({number for figures in rows.values() for number in figures})


def _styles(rows: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A color and a marker for each row."""
    colors, markers = cycle((*COLORS, LAST_COLOR)), cycle(MARKERS)
    return {row: (color, marker) for row, color, marker in zip(rows, colors, markers, strict=False)}


def _legend_beside(axes: Any, rows: dict[str, dict[int, Figure]]) -> None:
    """Name the lines beside the figure, in the order in which they end."""
    lines = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    names = sorted(lines, key=lambda row: -(rows[row][max(rows[row])].mean or 0.0))
    beside = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
    axes.legend([lines[name] for name in names], names, frameon=False, fontsize=9, **beside)


def _error_lines(
    title: str, rows: dict[str, dict[int, Figure]], styles: Mapping[str, tuple[str, str]]
) -> tuple[Any, Any]:
    """A line for each row, with a band of one standard deviation over the folds."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(6.4, 4), layout="constrained")
    axes = canvas.subplots()
    for row, figures in rows.items():
        color, marker = styles[row]
        numbers = np.array(sorted(figures))
        mean = np.array([figures[number].mean for number in numbers], dtype=float)
        deviation = np.array([figures[number].deviation or 0.0 for number in numbers])
        axes.plot(numbers, mean, color=color, marker=marker, markersize=4, linewidth=2, label=row)
        axes.fill_between(numbers, mean - deviation, mean + deviation, color=color, alpha=0.1, linewidth=0)
    axes.set_title(title, fontsize=11)
    axes.set(ylabel="test error, %", ylim=(0, None))
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
