"""Figures of a grid: the cost of training, as in the paper's Appendix F, or the error against labels or steps."""

from collections.abc import Iterable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.bench.recipe import MEMORY, SECONDS
from rankingmatch.bench.results import Outcome
from rankingmatch.bench.tables import Figure
from rankingmatch.data import dataset_title

SECONDS_PER = {"epoch": "seconds per epoch", "batch": "milliseconds per batch"}
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


Lines = dict[str, dict[int, Figure]]  # row → number of labels, or step → the errors of the folds


def draw(outcome: Outcome, directory: Path) -> list[Path]:
    """Write the figures of a recipe, which may be none, into a directory; returns the files."""
    name = outcome.recipe.name
    if outcome.recipe.measure:
        return draw_costs(outcome, directory)
    if errors := errors_by_labels(outcome):
        return draw_errors(name, errors, directory)
    return draw_learning(name, learning_curves(outcome), directory)


def errors_by_labels(outcome: Outcome) -> dict[str, Lines]:
    """By dataset: the test errors (validation errors if there are no test images) for each number of labels.

    Datasets with fewer than two numbers of labels are left out.
    """
    errors: dict[str, Lines] = {}
    for column in outcome.recipe.columns:
        for row in outcome.recipe.rows if column.labels is not None else ():
            results = [run.result for run in outcome.of(row.name, column.title)]
            figure = Figure.of(r.val_error if r.test_error is None else r.test_error for r in results)
            if figure.values:
                by_row = errors.setdefault(dataset_title(column.dataset), {})
                by_row.setdefault(row.name, {})[column.labels or 0] = figure
    return {dataset: rows for dataset, rows in errors.items() if len(next(iter(rows.values()))) > 1}


def learning_curves(outcome: Outcome) -> dict[str, Lines]:
    """By column: the errors, as above, at the steps at which every fold was evaluated."""
    curves: dict[str, Lines] = {}
    for column in outcome.recipe.columns:
        for row in outcome.recipe.rows:
            by_step = [
                {
                    line["step"]: line["val_error"] if line.get("test_error") is None else line["test_error"]
                    for line in run.history
                }
                for run in outcome.of(row.name, column.title)
            ]
            steps = sorted(set.intersection(*map(set, by_step))) if by_step else []
            if len(steps) > 1:
                figures = {step: Figure(tuple(fold[step] for fold in by_step)) for step in steps}
                curves.setdefault(column.title, {})[row.name] = figures
    return curves


def draw_costs(outcome: Outcome, directory: Path) -> list[Path]:
    """Write a figure for each quantity, with a panel for each column and a line for each row: its first fold."""
    from matplotlib.figure import Figure as Canvas

    per, files = outcome.recipe.measure, []
    first = [cell for cell in outcome.grid if cell.fold == 0]
    columns = list(dict.fromkeys(cell.column.title for cell in first))
    for quantity in (SECONDS, MEMORY):
        canvas = Canvas(figsize=(4 * len(columns), 3), layout="constrained")
        panels = canvas.subplots(1, len(columns), squeeze=False)[0]
        for axes, column in zip(panels, columns, strict=True):
            for cell in (cell for cell in first if cell.column.title == column):
                values = outcome.costs(quantity, cell)
                axes.plot(np.arange(1, len(values) + 1), values, label=cell.row.name, linewidth=1)
            axes.set_title(column, fontsize=10)
            axes.set(xlabel=per, ylabel=SECONDS_PER[per] if quantity == SECONDS else "peak memory (MB)")
            axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        files += _save(canvas, directory / f"{outcome.recipe.name}-{quantity}")
    return files


def draw_errors(name: str, errors: dict[str, Lines], directory: Path) -> list[Path]:
    """Write a figure for each dataset: the error against the number of labels."""
    files = []
    for dataset, rows in errors.items():
        styles, last = _styles(rows), list(rows)[-1]
        styles[last] = (LAST_COLOR, styles[last][1])
        canvas, axes = _error_lines(dataset, rows, styles)
        numbers = _numbers(rows)
        axes.set_xscale("log")
        axes.set_xticks(numbers, [str(number) for number in numbers])
        axes.minorticks_off()
        axes.set(xlabel="labeled images")
        files += _save(canvas, directory / (name if len(errors) == 1 else f"{name}-{dataset}"))
    return files


def draw_learning(name: str, curves: dict[str, Lines], directory: Path) -> list[Path]:
    """Write a figure for each column: the error against the steps of training."""
    files = []
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
        # The lines are named beside the figure, in the order in which they end.
        lines = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        names = sorted(lines, key=lambda row: -(rows[row][max(rows[row])].mean or 0.0))
        place = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        axes.legend([lines[one] for one in names], names, frameon=False, fontsize=9, **place)
        title = column.replace(", ", "-").replace(" ", "-")
        files += _save(canvas, directory / (name if len(curves) == 1 else f"{name}-{title}"))
    return files


def _numbers(rows: Lines) -> list[int]:
    """The numbers of labels, or the steps, at which there are errors."""
    return sorted({number for figures in rows.values() for number in figures})


def _styles(rows: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A color and a marker for each row."""
    colors, markers = cycle((*COLORS, LAST_COLOR)), cycle(MARKERS)
    return {row: (color, marker) for row, color, marker in zip(rows, colors, markers, strict=False)}


def _error_lines(title: str, rows: Lines, styles: Mapping[str, tuple[str, str]]) -> tuple[Any, Any]:
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


def _save(canvas: Any, path: Path) -> list[Path]:
    """Write a figure as SVG and PNG; the same figure gives the same file."""
    import matplotlib as mpl

    path.parent.mkdir(exist_ok=True)
    files = [path.with_name(f"{path.name}.{suffix}") for suffix in ("svg", "png")]
    with mpl.rc_context({"svg.hashsalt": "rankingmatch"}):
        canvas.savefig(files[0], metadata={"Date": None})
    canvas.savefig(files[1], dpi=150)
    return files
