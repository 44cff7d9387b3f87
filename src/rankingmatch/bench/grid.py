"""Training a grid: its runs one after the other, in processes on this machine, or by workers elsewhere."""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.progress import BarColumn, Progress, TaskID

from rankingmatch.bench.baselines import Features, fit_to_result
from rankingmatch.bench.recipe import Cell
from rankingmatch.core.errors import DivergedError, Interrupted, RunError, is_out_of_memory, setting
from rankingmatch.core.names import plain_console, task_column
from rankingmatch.data import Dataset
from rankingmatch.runs.config import Plan
from rankingmatch.runs.directory import Run
from rankingmatch.runs.display import duration, loading_progress
from rankingmatch.runs.job import load_dataset, split_dataset, start, stop_requests, training_records
from rankingmatch.runs.result import Result

RUN_AGAIN = "stopped; run the same command again to resume"
SECONDS_BETWEEN_LINES = 60.0


class Workers(Protocol):
    """Something that trains runs, several at a time; a run is identified by the name of its directory."""

    @property
    def at_a_time(self) -> int:
        """The number of runs trained at a time."""

    def submit(self, path: Path, plan: Plan) -> "Future[Result]":
        """Submit a run; the future has its result or its error."""

    def steps(self) -> list[tuple[str, int]]:
        """The (name, step) of each run that has made progress since the last call."""

    def stop(self) -> None:
        """Ask all running runs to write a checkpoint and end."""


def load_datasets(cells: Iterable[Cell]) -> None:
    """Download and decode each dataset once, not once in each process, and check that it has enough labels."""
    loaded: dict[Hashable, Dataset] = {}
    checked = set()
    with loading_progress() as progress:
        for cell in cells:
            config = cell.config
            key = (config.dataset, config.execution.data_dir, config.data.image_size, config.data.crop)
            if key not in loaded:
                loaded[key] = load_dataset(cell.plan, progress)
            if (key, config.data) not in checked:
                split_dataset(cell.plan, loaded[key])
                checked.add((key, config.data))


def run_grid(
    grid: list[Cell],
    out: Path,
    display: "GridDisplay",
    *,
    jobs: int = 1,
    workers: Workers | None = None,
    finished: Callable[[Cell, Run], None] = lambda cell, run: None,
) -> None:
    """Train the runs of a grid, each from its checkpoint if there is one; the first failure stops all.

    The workers train them if given, otherwise `jobs` processes. Mistakes in the settings or the data are reported
    before the first run starts. `finished` is called after each run.
    """
    load_datasets(grid)
    cells = {cell.directory: cell for cell in grid}

    def finish(name: str, result: Result) -> None:
        finished(cells[name], Run(out / name))
        display.finish(name, result)

    with stop_requests() as stopped, contextlib.ExitStack() as stack:
        features: dict[Any, Features] = {}
        for cell in grid:  # the baselines first, which take seconds and share their features
            if cell.baseline is not None:
                if stopped():
                    raise Interrupted(RUN_AGAIN)
                finish(cell.directory, fit_to_result(cell.baseline, Run(out / cell.directory), cell.plan, features))
        plans = {name: cell.plan for name, cell in cells.items() if cell.baseline is None}
        measuring = any(plan.config.execution.measure_steps for plan in plans.values())
        if workers is None and (jobs > 1 or measuring):
            workers = WorkerProcesses(jobs, fresh=measuring)
            stack.enter_context(workers.pool)
        if workers is None:
            for name, plan in plans.items():
                finish(name, train_to_result(out / name, plan, stopped, partial(display.update, name)))
            return
        _distribute(workers, out, plans, display, finish, stopped)


def _distribute(
    workers: Workers,
    out: Path,
    plans: dict[str, Plan],
    display: "GridDisplay",
    finish: Callable[[str, Result], None],
    stopped: Callable[[], bool],
) -> None:
    futures = {workers.submit(out / name, plan): name for name, plan in plans.items()}
    failures: list[BaseException] = []
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        for name, step in workers.steps():
            display.update(name, step)
        for future in done:
            try:
                finish(futures[future], future.result())
            except BaseException as error:
                failures.append(error)
        if stopped() or failures:  # the running ones write a checkpoint and end
            workers.stop()
            pending = {future for future in pending if not future.cancel()}
    for failure in failures:
        if isinstance(failure, BrokenProcessPool):
            raise RunError(f"a run was killed, possibly for lack of memory; try fewer {setting('jobs')}") from failure
        if not isinstance(failure, Interrupted):
            raise failure
    if failures or any(future.cancelled() for future in futures):
        raise Interrupted(RUN_AGAIN)


def train_to_result(path: Path, plan: Plan, stopped: Callable[[], bool], update: Callable[[int], None]) -> Result:
    """Train a run to its end in this process; raises Interrupted if it is stopped earlier."""
    run = Run(path)
    with contextlib.suppress(DivergedError):  # the run has it in its result, as in the paper's ablation
        try:
            for record in training_records(start(run, plan), stopped):
                update(record.step)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise RunError(
                f"{path}: out of memory; lower {setting('jobs')}, or use a smaller {setting('scale')}"
            ) from error
    result = run.result()
    if result is None:
        raise Interrupted(RUN_AGAIN)
    return result


def with_threads(plan: Plan, threads: int) -> Plan:
    """The same run with this many threads, unless its settings have a number."""
    execution = plan.config.execution
    config = replace(plan.config, execution=replace(execution, threads=execution.threads or threads))
    return replace(plan, config=config)


# --- processes on this machine ------------------------------------------------------------------------------

_worker: dict[str, Any] = {}  # in a worker process: the queue for its steps, the event that stops it, and its parent


class WorkerProcesses:
    """Worker processes on this machine; with `fresh`, each run has a new one, so that its memory can be measured."""

    def __init__(self, jobs: int, *, fresh: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._queue, stopping = context.Queue(), context.Event()
        self.at_a_time, self.stop = jobs, stopping.set
        self._threads = max(1, (os.cpu_count() or 1) // jobs)
        arguments, tasks = (self._queue, stopping, os.getpid()), 1 if fresh else None
        self.pool = ProcessPoolExecutor(jobs, context, _initialize, arguments, max_tasks_per_child=tasks)

    def submit(self, path: Path, plan: Plan) -> "Future[Result]":
        """Submit a run."""
        return self.pool.submit(_train, path, with_threads(plan, self._threads))

    def steps(self) -> list[tuple[str, int]]:
        """What has arrived in the queue."""
        steps = []
        while not self._queue.empty():
            steps.append(self._queue.get())
        return steps


def _initialize(queue: Any, stopping: Any, parent: int) -> None:
    """Ignore signals in a worker: its parent handles them, and tells it when to stop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _worker.update(queue=queue, stopping=stopping, parent=parent)


def _train(path: Path, plan: Plan) -> Result:
    def stopped() -> bool:
        return bool(_worker["stopping"].is_set()) or os.getppid() != _worker["parent"]

    return train_to_result(path, plan, stopped, lambda step: _worker["queue"].put((path.name, step)))


# --- progress -----------------------------------------------------------------------------------------------


class GridDisplay:
    """What is told how a grid goes, by the names of its runs. This one shows nothing."""

    def update(self, name: str, step: int) -> None:
        """A run has reached a step."""

    def finish(self, name: str, result: Result) -> None:
        """A run is finished."""


class Pace:
    """Estimates the remaining time; runs of the same row and dataset are assumed to be equally fast."""

    def __init__(self, todo: list[Cell], jobs: int) -> None:
        self._left = {cell.directory: cell.config.training.last_step for cell in todo}
        self._kinds = {cell.directory: (cell.row.name, cell.column.dataset) for cell in todo}
        self._last: dict[str, float] = {}  # when runs under way reached their last step
        self._spent: dict[tuple[str, str], list[float]] = {}  # kind → seconds and steps
        self._jobs = jobs

    def update(self, name: str, left: int, now: float) -> None:
        """Record how many steps a run has left; the first call for a run only starts its clock."""
        if name in self._last:
            spent = self._spent.setdefault(self._kinds[name], [0.0, 0.0])
            spent[0] += now - self._last[name]
            spent[1] += self._left[name] - left
        self._last[name], self._left[name] = now, left

    def finish(self, name: str) -> None:
        """Record that a run is finished."""
        del self._left[name]

    def seconds_left(self) -> float | None:
        """The estimated seconds for the rest of the grid; None while nothing is known."""
        paces = {kind: seconds / steps for kind, (seconds, steps) in self._spent.items() if steps}
        if not paces:
            return None
        mean = sum(paces.values()) / len(paces)
        work = sum(steps * paces.get(self._kinds[name], mean) for name, steps in self._left.items())
        return work / max(1, min(self._jobs, len(self._left)))


class GridProgress(GridDisplay):
    """Prints a line when a run ends; on a terminal, bars for the grid and each current run, else a line per minute."""

    def __init__(self, grid: list[Cell], todo: list[Cell], jobs: int, bars: Progress) -> None:
        self._cells = {cell.directory: cell for cell in todo}
        self._done, self._total = len(grid) - len(todo), len(grid)
        self._pace, self._bars = Pace(todo, jobs), bars
        self._tasks: dict[str, TaskID] = {}
        self._printed: dict[str, float] = {}
        self._all = bars.add_task("", total=len(grid), status="")
        self._refresh()

    def update(self, name: str, step: int) -> None:
        """Move the run's bar, or print its step once per minute."""
        now, total = time.monotonic(), self._cells[name].config.training.last_step
        self._pace.update(name, total - step, now)
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(self._cells[name].title, total=total, status="")
        self._bars.update(self._tasks[name], completed=step, status=f"step {step:,} of {total:,}")
        if now - self._printed.setdefault(name, now) >= SECONDS_BETWEEN_LINES and self._bars.disable:
            self._printed[name] = now
            self._print(name, f"step {step} of {total}")
        self._refresh()

    def finish(self, name: str, result: Result) -> None:
        """Print the result of a run."""
        self._pace.finish(name)
        self._done += 1
        if name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))
        if result.diverged_at is not None:
            self._print(name, f"NaN-{result.diverged_at}")
        else:
            error = "no test images" if result.test_error is None else f"test error {result.test_error:.2f}%"
            self._print(name, f"{error} in {duration(result.seconds)}")
        self._refresh()

    def _left(self) -> str:
        return f"{duration(self._pace.seconds_left())} left"

    def _print(self, name: str, message: str) -> None:
        line = f"[{self._done}/{self._total}] {self._cells[name].title}: {message}; {self._left()}"
        self._bars.console.print(line, soft_wrap=True)

    def _refresh(self) -> None:
        description = f"{self._done} of {self._total} runs"
        self._bars.update(self._all, completed=self._done, description=description, status=self._left())


@contextlib.contextmanager
def grid_display(grid: list[Cell], finished: Container[str], jobs: int, *, quiet: bool) -> Iterator[GridDisplay]:
    """The display for where the output goes: nowhere, to a terminal, or to a log."""
    todo = [cell for cell in grid if cell.directory not in finished]
    if quiet or not todo:
        yield GridDisplay()
        return
    console = plain_console(stderr=True)
    columns = (task_column(), BarColumn(), task_column("{task.fields[status]}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        yield GridProgress(grid, todo, jobs, bars)
