"""What a grid will cost."""

from dataclasses import dataclass
from typing import Any

from rankingmatch.bench.recipe import PlannedCell
from rankingmatch.core.errors import ConfigError, DivergedError, setting
from rankingmatch.data import Progress, no_progress
from rankingmatch.runs.config import Plan
from rankingmatch.runs.display import duration
from rankingmatch.runs.estimate import measure, total_seconds
from rankingmatch.runs.speeds import Speed, approximate_speed, remembered_speed

__all__ = ["Estimate", "estimate_grid"]

SLOW = 10  # seconds of a step, from which on milliseconds are not of interest


@dataclass(frozen=True)
class Estimate:
    """The cost of the folds of a row and a column."""

    row: str
    column: str
    runs: int
    steps: int
    seconds_per_step: float
    seconds: float  # of all the runs
    measured: bool  # whether such a step was measured on this machine

    def __str__(self) -> str:
        """A line for a person."""
        about = "" if self.measured else "about "
        step = self.seconds_per_step
        time = f"{1000 * step:,.0f} ms" if step < SLOW else f"{step:,.0f} s"
        return (
            f"{self.row}, {self.column}: {self.runs} × {self.steps:,} steps of {about}{time}, {duration(self.seconds)}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return vars(self)


def estimate_grid(grid: list[PlannedCell], measuring: bool = False, progress: Progress = no_progress) -> list[Estimate]:
    """The cost of each row and column. Labels cost nothing, so that each row has one speed per dataset.

    Baselines are left out: they take seconds.

    Parameters
    ----------
    grid
        The runs.
    measuring
        Whether to measure steps that this machine has not measured yet, instead of approximating their time.
    progress
        Called as steps are measured.
    """
    speeds: dict[tuple[str, str], tuple[Speed, bool]] = {}
    counts: dict[tuple[str, str], list[PlannedCell]] = {}
    for cell in grid:
        if cell.baseline is None:
            counts.setdefault((cell.row.name, cell.column.title), []).append(cell)
    estimates = []
    for done, ((row, column), alike) in enumerate(counts.items()):
        progress("measuring steps", done, len(counts))
        config, kind = alike[0].config, (row, alike[0].config.dataset)
        if kind not in speeds:
            speeds[kind] = _speed(alike[0].plan, measuring)
        speed, measured = speeds[kind]
        seconds = len(alike) * total_seconds(config, speed)
        estimates.append(Estimate(row, column, len(alike), config.training.last_step, speed.step, seconds, measured))
    progress("measuring steps", len(counts), len(counts))
    return estimates


def _speed(plan: Plan, measuring: bool) -> tuple[Speed, bool]:
    """The speed of a run, and whether it was measured.

    Raises ConfigError if it cannot be known without measuring.
    """
    known = remembered_speed(plan)
    if known is None and measuring:
        try:
            known = measure(plan)
        except DivergedError:  # on noise, a loss without bounds may diverge at once; its cost is that of others
            known = None
    if known is not None:
        return known, True
    approximate = approximate_speed(plan)
    if approximate is None:
        raise ConfigError(
            f"how long a step of {plan.config.network.network} takes on {plan.config.device()} is not known yet; "
            f"measure it with {setting('measure')}"
        )
    return approximate, False
