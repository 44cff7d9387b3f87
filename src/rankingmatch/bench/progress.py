"""How far a grid has come, and how long the rest takes."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from rankingmatch.bench.grid import Watcher
from rankingmatch.bench.recipe import Cell
from rankingmatch.runs.directory import Result, Run
from rankingmatch.runs.display import duration

SECONDS_BETWEEN_LINES = 60.0


class Pace:
    """Steps done and left; runs of the same row and dataset are taken to go equally fast."""

    def __init__(self, grid: list[Cell], finished: set[int], jobs: int) -> None:
        self._kinds = [(cell.line.name, cell.column.dataset) for cell in grid]
        self._left = {
            number: cell.config.training.last_step for number, cell in enumerate(grid) if number not in finished
        }
        self._last: dict[int, tuple[float, int]] = {}  # of runs under way: when, and at which step
        self._spent: dict[tuple[str, str], list[float]] = {}  # kind → seconds and steps
        self._jobs = jobs

    def stepped(self, number: int, step: int, total: int, now: float) -> None:
        """Learn from a run's progress. The first sight of a run only starts the clock."""
        if number in self._last:
            before, at = self._last[number]
            spent = self._spent.setdefault(self._kinds[number], [0.0, 0.0])
            spent[0] += now - before
            spent[1] += step - at
        self._last[number] = (now, step)
        self._left[number] = total - step

    def finished(self, number: int) -> None:
        """A run is over."""
        self._left.pop(number, None)
        self._last.pop(number, None)

    def seconds_left(self) -> float | None:
        """An estimate for the rest of the grid; None while nothing is known."""
        paces = {kind: seconds / steps for kind, (seconds, steps) in self._spent.items() if steps}
        if not paces:
            return None
        mean = sum(paces.values()) / len(paces)
        work = sum(steps * paces.get(self._kinds[number], mean) for number, steps in self._left.items())
        return work / max(1, min(self._jobs, len(self._left)))


def result_words(result: Result) -> str:
    """A result in a few words."""
    if result.diverged_at is not None:
        return f"NaN-{result.diverged_at}"
    error = "no test images" if result.test_error is None else f"test error {result.test_error:.2f} %"
    return f"{error} in {duration(result.seconds)}"


class Lines:
    """A line when a run ends, and one a minute while it goes on."""

    def __init__(self, grid: list[Cell], finished: set[int], jobs: int) -> None:
        self._grid = grid
        self._done = len(finished)
        self._pace = Pace(grid, finished, jobs)
        self._said: dict[int, float] = {}

    def stepped(self, number: int, step: int) -> None:
        """Now and then, where a run stands."""
        now = time.monotonic()
        total = self._grid[number].config.training.last_step
        self._pace.stepped(number, step, total, now)
        if now - self._said.setdefault(number, now) >= SECONDS_BETWEEN_LINES:
            self._said[number] = now
            self._print(f"{self._grid[number].title}: step {step} of {total}")

    def finished(self, number: int, result: Result) -> None:
        """What a run came to."""
        self._pace.finished(number)
        self._done += 1
        self._print(f"{self._grid[number].title}: {result_words(result)}")

    def _print(self, words: str) -> None:
        left = duration(self._pace.seconds_left())
        print(f"[{self._done}/{len(self._grid)}] {words}; {left} left", file=sys.stderr, flush=True)


class Bars:
    """A bar for the grid and one for each run under way."""

    def __init__(self, grid: list[Cell], finished: set[int], jobs: int, progress: Progress) -> None:
        self._grid = grid
        self._pace = Pace(grid, finished, jobs)
        self._bars = progress
        self._tasks: dict[int, TaskID] = {}
        self._all = progress.add_task("", total=len(grid), completed=len(finished), words="")
        self._refresh(0)

    def stepped(self, number: int, step: int) -> None:
        """Move the run's bar."""
        cell = self._grid[number]
        total = cell.config.training.last_step
        self._pace.stepped(number, step, total, time.monotonic())
        if number not in self._tasks:
            self._tasks[number] = self._bars.add_task(cell.title, total=total, words="")
        self._bars.update(self._tasks[number], completed=step, words=f"step {step:,} of {total:,}")
        self._refresh(0)

    def finished(self, number: int, result: Result) -> None:
        """What a run came to, above the bars."""
        self._pace.finished(number)
        if number in self._tasks:
            self._bars.remove_task(self._tasks.pop(number))
        self._bars.console.print(f"{self._grid[number].title}: {result_words(result)}", highlight=False)
        self._refresh(1)

    def _refresh(self, more: int) -> None:
        self._bars.update(self._all, advance=more)
        done = int(self._bars.tasks[0].completed)
        left = duration(self._pace.seconds_left())
        self._bars.update(self._all, description=f"{done} of {len(self._grid)} runs", words=f"{left} left")


class Silence:
    """Shows nothing."""

    def stepped(self, number: int, step: int) -> None:
        """Nothing."""

    def finished(self, number: int, result: Result) -> None:
        """Nothing."""


@contextmanager
def watching(grid: list[Cell], runs: list[Run], jobs: int, *, quiet: bool) -> Iterator[Watcher]:
    """The watcher that suits where the output goes."""
    finished = {number for number, run in enumerate(runs) if run.result() is not None}
    console = Console(stderr=True)
    if quiet or len(finished) == len(grid):
        yield Silence()
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"))
        with Progress(*columns, console=console) as progress:
            yield Bars(grid, finished, jobs, progress)
    else:
        yield Lines(grid, finished, jobs)
