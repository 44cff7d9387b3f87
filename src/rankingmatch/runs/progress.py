"""What is shown of work before and after training: scanning, reading, predicting, writing a report."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TaskProgressColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from rankingmatch.core.names import plain_console, task_column
from rankingmatch.data import Progress, no_progress
from rankingmatch.runs.events import print_event

__all__ = ["loading_progress"]

PATIENCE = 2.0  # seconds after which a log says what is being done,
SECONDS_BETWEEN_LINES = 15.0  # and how often it says so
SECONDS_BETWEEN_EVENTS = 1.0


@contextmanager
def loading_progress(*, json_lines: bool = False, quiet: bool = False) -> Iterator[Progress]:
    """Show the progress of work that takes long: to a program, as bars on a terminal, or as lines in a log."""
    console = plain_console(stderr=True)
    if quiet:
        yield no_progress
    elif json_lines:
        yield _events()
    else:
        shown = _LoadingBars(console) if console.is_terminal else _LoadingLines()
        try:
            yield shown
        finally:
            shown.close()


def _events() -> Progress:
    """A JSON object per second, with the task, the amount done and the total amount."""
    printed = time.monotonic()

    def show(task: str, done: int, total: int | None) -> None:
        nonlocal printed
        if time.monotonic() - printed >= SECONDS_BETWEEN_EVENTS:
            printed = time.monotonic()
            print_event("loading", {"task": task, "done": done, "total": total})

    return show


class _LoadingBars:
    """A bar for each task under way; there is nothing on the screen when all of them are finished."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, task: str, done: int, total: int | None) -> None:
        if self._bars is None:
            columns = (task_column(), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), MofNCompleteColumn())
            self._bars = Bars(*columns, console=self._console, transient=True)
            self._bars.start()
        if task not in self._tasks:
            self._tasks[task] = self._bars.add_task(task, total=total)
        self._bars.update(self._tasks[task], completed=done, total=total)
        if self._bars.finished:
            self.close()

    def close(self) -> None:
        """Remove the bars."""
        if self._bars is not None:
            self._bars.stop()
        self._bars, self._tasks = None, {}


class _LoadingLines:
    """A line for a task that takes longer than two seconds, and further ones while it goes on."""

    def __init__(self) -> None:
        self._current: tuple[str, int, int | None] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def __call__(self, task: str, done: int, total: int | None) -> None:
        self._current = None if total is not None and done >= total else (task, done, total)

    def close(self) -> None:
        """Print no more lines."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        """Print what is under way, if it is still the same task as two seconds ago."""
        last, due = "", 0.0
        while not self._closed.wait(PATIENCE):
            task, done, total = self._current or ("", 0, None)
            if task and task == last and time.monotonic() >= due:
                amount = f": {done:,} of {total:,}" if total is not None else " …"
                print(f"{task}{amount}", file=sys.stderr, flush=True)
                due = time.monotonic() + SECONDS_BETWEEN_LINES
            elif task != last:
                last, due = task, 0.0
