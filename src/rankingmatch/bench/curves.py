"""Curves of the cost of training, as in the paper's Appendix F."""

from pathlib import Path

import numpy as np

from rankingmatch.bench.recipe import MEMORY, SECONDS

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
