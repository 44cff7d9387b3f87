"""What a grid will cost, from a step measured for each row and dataset."""

from dataclasses import dataclass
from typing import Any

from rankingmatch.bench.recipe import Cell
from rankingmatch.runs.display import duration
from rankingmatch.runs.estimate import measure, total_seconds


@dataclass(frozen=True)
class Estimate:
    """The cost of the folds of a row and a column."""

    row: str
    column: str
    runs: int
    steps: int
    seconds_per_step: float
    seconds: float  # of all the runs

    def __str__(self) -> str:
        """A line for a person."""
        return (
            f"{self.row}, {self.column}: {self.runs} × {self.steps:,} steps of {1000 * self.seconds_per_step:,.0f} ms, "
            f"{duration(self.seconds)}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return vars(self)


def estimate_grid(grid: list[Cell]) -> list[Estimate]:
    """The cost of each row and column. Labels cost nothing, so each row is measured once per dataset."""
    measured: dict[tuple[str, str], tuple[float, float]] = {}
    counts: dict[tuple[str, str], list[Cell]] = {}
    for cell in grid:
        counts.setdefault((cell.row.name, cell.column.title), []).append(cell)
    estimates = []
    for (row, column), alike in counts.items():
        config = alike[0].config
        kind = (row, config.dataset)
        if kind not in measured:
            measured[kind] = measure(alike[0].plan)
        step, evaluation = measured[kind]
        seconds = len(alike) * total_seconds(config, step, evaluation)
        estimates.append(Estimate(row, column, len(alike), config.training.last_step, step, seconds))
    return estimates
