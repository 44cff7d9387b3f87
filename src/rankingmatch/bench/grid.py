"""Training a grid: its runs one after the other, in processes on this machine, or by workers elsewhere."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rankingmatch.bench.baselines import Features, fit_to_result
from rankingmatch.bench.progress import GridDisplay
from rankingmatch.bench.recipe import Cell
from rankingmatch.core.errors import DivergedError, Interrupted, RunError, is_out_of_memory, setting
from rankingmatch.data import Dataset
from rankingmatch.runs.config import Plan
from rankingmatch.runs.directory import Run
from rankingmatch.runs.display import loading_progress
from rankingmatch.runs.job import load_dataset, split_dataset, start, stop_requests, training_records
from rankingmatch.runs.result import Result

__all__ = ["RUN_AGAIN", "Workers", "load_datasets", "run_grid", "train_to_result", "with_threads"]

RUN_AGAIN = "stopped; run the same command again to resume"


class Workers(Protocol):
    """Something that trains runs, several at a time; a run is identified by its index in the grid."""

    @property
    def at_a_time(self) -> int:
        """The number of runs trained at a time."""

    def submit(self, index: int, path: Path, plan: Plan) -> "Future[Result]":
        """Submit a run; the future has its result or its error."""

    def steps(self) -> list[tuple[int, int]]:
        """The (index, step) of each run that has made progress since the last call."""

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
    todo: Mapping[int, Cell],
    out: Path,
    display: GridDisplay,
    *,
    jobs: int = 1,
    workers: Workers | None = None,
    finished: Callable[[int, Run], None] = lambda index, run: None,
) -> None:
    """Train the runs of a grid, by index, each from its checkpoint if there is one; the first failure stops all.

    The workers train them if given, otherwise `jobs` processes. Mistakes in the settings or the data are reported
    before the first run starts. `finished` is called after each run.
    """
    load_datasets(todo.values())

    def finish(index: int, result: Result) -> None:
        finished(index, Run(out / todo[index].directory))
        display.finish(index, result)

    with stop_requests() as stopped, contextlib.ExitStack() as stack:
        features: dict[Any, Features] = {}
        for index, cell in todo.items():  # the baselines first, which take seconds and share their features
            if cell.baseline is not None:
                if stopped():
                    raise Interrupted(RUN_AGAIN)
                finish(index, fit_to_result(cell.baseline, Run(out / cell.directory), cell.plan, features))
        trained = {index: cell for index, cell in todo.items() if cell.baseline is None}
        measuring = any(cell.config.execution.measure_steps for cell in trained.values())
        if workers is None and (jobs > 1 or measuring):
            workers = stack.enter_context(worker_processes(jobs, fresh=measuring))
        if workers is not None:
            futures = {workers.submit(index, out / one.directory, one.plan): index for index, one in trained.items()}
            _distribute(workers, futures, display.update, finish, stopped)
            return
        for index, cell in trained.items():
            update = partial(display.update, index)
            finish(index, train_to_result(out / cell.directory, cell.plan, stopped, update))


def _distribute(
    workers: Workers,
    futures: Mapping["Future[Result]", int],
    update: Callable[[int, int], None],
    finish: Callable[[int, Result], None],
    stopped: Callable[[], bool],
) -> None:
    failures: list[BaseException] = []
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        for index, step in workers.steps():
            update(index, step)
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
    """Worker processes on this machine."""

    def __init__(self, pool: ProcessPoolExecutor, jobs: int, queue: Any, stopping: Any) -> None:
        self.at_a_time = jobs
        self.stop = stopping.set
        self._pool, self._queue = pool, queue
        self._threads = max(1, (os.cpu_count() or 1) // jobs)

    def submit(self, index: int, path: Path, plan: Plan) -> "Future[Result]":
        """Submit a run."""
        return self._pool.submit(_train, index, path, with_threads(plan, self._threads))

    def steps(self) -> list[tuple[int, int]]:
        """What has arrived in the queue."""
        steps = []
        while not self._queue.empty():
            steps.append(self._queue.get())
        return steps


@contextlib.contextmanager
def worker_processes(jobs: int, *, fresh: bool) -> Iterator[WorkerProcesses]:
    """Start worker processes; with `fresh`, each run has a new process, so that its memory can be measured."""
    context = multiprocessing.get_context("spawn")
    queue, stopping = context.Queue(), context.Event()
    arguments = (queue, stopping, os.getpid())
    with ProcessPoolExecutor(jobs, context, _initialize, arguments, max_tasks_per_child=1 if fresh else None) as pool:
        yield WorkerProcesses(pool, jobs, queue, stopping)


def _initialize(queue: Any, stopping: Any, parent: int) -> None:
    """Ignore signals in a worker: its parent handles them, and tells it when to stop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _worker.update(queue=queue, stopping=stopping, parent=parent)


def _train(index: int, path: Path, plan: Plan) -> Result:
    def stopped() -> bool:
        return bool(_worker["stopping"].is_set()) or os.getppid() != _worker["parent"]

    return train_to_result(path, plan, stopped, lambda step: _worker["queue"].put((index, step)))
