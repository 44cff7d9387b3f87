"""The progress of a grid, and the remaining time."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskID

from rankingmatch.bench.recipe import Cell
from rankingmatch.core.names import plain_console, task_column
from rankingmatch.runs.display import duration
from rankingmatch.runs.result import Result

SECONDS_BETWEEN_LINES = 60.0


class GridDisplay:
    """What is told how a grid goes; a run is identified by its index in the grid. This one shows nothing."""

    def update(self, index: int, step: int) -> None:
        """A run has reached a step."""

    def finish(self, index: int, result: Result) -> None:
        """A run is finished."""


class Pace:
    """Estimates the remaining time; runs of the same row and dataset are assumed to be equally fast."""

    def __init__(self, grid: list[Cell], finished: set[int], jobs: int) -> None:
        self._kinds = [(cell.row.name, cell.column.dataset) for cell in grid]
        self._left = {index: cell.config.training.last_step for index, cell in enumerate(grid) if index not in finished}
        self._last: dict[int, float] = {}  # when runs under way reached their last step
        self._spent: dict[tuple[str, str], list[float]] = {}  # kind → seconds and steps
        self._jobs = jobs

    def update(self, index: int, left: int, now: float) -> None:
        """Record how many steps a run has left; the first call for a run only starts its clock."""
        if index in self._last:
            spent = self._spent.setdefault(self._kinds[index], [0.0, 0.0])
            spent[0] += now - self._last[index]
            spent[1] += self._left[index] - left
        self._last[index], self._left[index] = now, left

    def finish(self, index: int) -> None:
        """Record that a run is finished."""
        self._left.pop(index, None)
        self._last.pop(index, None)

    def seconds_left(self) -> float | None:
        """The estimated seconds for the rest of the grid; None while nothing is known."""
        paces = {kind: seconds / steps for kind, (seconds, steps) in self._spent.items() if steps}
        if not paces:
            return None
        mean = sum(paces.values()) / len(paces)
        work = sum(steps * paces.get(self._kinds[index], mean) for index, steps in self._left.items())
        return work / max(1, min(self._jobs, len(self._left)))


class GridLines(GridDisplay):
    """Prints a line when a run ends, and one per minute while it is running."""

    def __init__(self, grid: list[Cell], finished: set[int], jobs: int) -> None:
        self._grid, self._done = grid, len(finished)
        self._pace = Pace(grid, finished, jobs)
        self._printed: dict[int, float] = {}

    def update(self, index: int, step: int) -> None:
        """Print the step of a run, once per minute."""
        now, total = time.monotonic(), self._grid[index].config.training.last_step
        self._pace.update(index, total - step, now)
        if now - self._printed.setdefault(index, now) >= SECONDS_BETWEEN_LINES:
            self._printed[index] = now
            self._print(index, f"step {step} of {total}")

    def finish(self, index: int, result: Result) -> None:
        """Print the result of a run."""
        self._pace.finish(index)
        self._done += 1
        self._print(index, summarize(result))

    def _print(self, index: int, message: str) -> None:
        counts, left = f"{self._done}/{len(self._grid)}", duration(self._pace.seconds_left())
        print(f"[{counts}] {self._grid[index].title}: {message}; {left} left", file=sys.stderr, flush=True)


class GridBars(GridDisplay):
    """Shows a progress bar for the grid and one for each current run."""

    def __init__(self, grid: list[Cell], finished: set[int], jobs: int, progress: Progress) -> None:
        self._grid, self._done = grid, len(finished)
        self._pace = Pace(grid, finished, jobs)
        self._bars = progress
        self._tasks: dict[int, TaskID] = {}
        self._all = progress.add_task("", total=len(grid), status="")
        self._refresh()

    def update(self, index: int, step: int) -> None:
        """Move the run's bar."""
        total = self._grid[index].config.training.last_step
        self._pace.update(index, total - step, time.monotonic())
        if index not in self._tasks:
            self._tasks[index] = self._bars.add_task(self._grid[index].title, total=total, status="")
        self._bars.update(self._tasks[index], completed=step, status=f"step {step:,} of {total:,}")
        self._refresh()

    def finish(self, index: int, result: Result) -> None:
        """Print the result of a run above the bars."""
        self._pace.finish(index)
        self._done += 1
        if index in self._tasks:
            self._bars.remove_task(self._tasks.pop(index))
        self._bars.console.print(f"{self._grid[index].title}: {summarize(result)}")
        self._refresh()

    def _refresh(self) -> None:
        counts, left = f"{self._done} of {len(self._grid)} runs", duration(self._pace.seconds_left())
        self._bars.update(self._all, completed=self._done, description=counts, status=f"{left} left")


def summarize(result: Result) -> str:
    """A result in one line."""
    if result.diverged_at is not None:
        return f"NaN-{result.diverged_at}"
    error = "no test images" if result.test_error is None else f"test error {result.test_error:.2f}%"
    return f"{error} in {duration(result.seconds)}"


@contextmanager
def grid_display(grid: list[Cell], finished: set[int], jobs: int, *, quiet: bool) -> Iterator[GridDisplay]:
    """The display for where the output goes: nowhere, to a terminal, or to a log."""
    console = plain_console(stderr=True)
    if quiet or len(finished) == len(grid):
        yield GridDisplay()
    elif console.is_terminal:
        with Progress(task_column(), BarColumn(), task_column("{task.fields[status]}"), console=console) as progress:
            yield GridBars(grid, finished, jobs, progress)
    else:
        yield GridLines(grid, finished, jobs)
