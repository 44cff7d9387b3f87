"""Workers train the runs of a grid and return their results, in processes on this machine or elsewhere."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from rankingmatch.core.errors import DivergedError, Interrupted, RunError, is_out_of_memory, setting
from rankingmatch.runs.config import Plan
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import start, training_records
from rankingmatch.runs.result import Result

__all__ = ["Workers", "train_to_result", "worker_processes"]

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


def train_to_result(path: Path, plan: Plan, stopped: Callable[[], bool], update: Callable[[int], None]) -> Result:
    """Train a run to its end in this process; raises Interrupted if it is stopped earlier."""
    run = Run(path)
    # A run that diverges records it in its result, as in the paper's ablation.
    with contextlib.suppress(DivergedError):
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
        self._pool = pool
        self.at_a_time = jobs
        self._threads = max(1, (os.cpu_count() or 1) // jobs)
        self._queue = queue
        self._stopping = stopping

    def submit(self, index: int, path: Path, plan: Plan) -> "Future[Result]":
        """Submit a run."""
        return self._pool.submit(_train, index, path, with_threads(plan, self._threads))

    def steps(self) -> list[tuple[int, int]]:
        """What has arrived in the queue."""
        steps = []
        while not self._queue.empty():
            steps.append(self._queue.get())
        return steps

    def stop(self) -> None:
        """Set the event that all workers watch."""
        self._stopping.set()


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
