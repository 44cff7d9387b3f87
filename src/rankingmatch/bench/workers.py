"""Who carries out the runs of a grid: a crew takes a run and gives its result, in processes here or elsewhere."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch

from rankingmatch.core.errors import DivergedError, Interrupted, RunError
from rankingmatch.runs.config import Config
from rankingmatch.runs.directory import Result, Run
from rankingmatch.runs.job import begin, work

GO_ON = "stopped; to go on: run the same command again"


class Crew(Protocol):
    """Workers who take runs, several at a time; a run is known by its number."""

    def submit(self, number: int, path: Path, config: Config) -> "Future[Result]":
        """Hand over a run; what it comes to is there later: a result, or what went wrong."""

    def steps(self) -> list[tuple[int, int]]:
        """Which runs have come to which step since this was last asked."""

    def stop(self) -> None:
        """Whatever is under way writes a checkpoint and leaves."""


def result_of(path: Path, config: Config, stopped: Callable[[], bool], stepped: Callable[[int], None]) -> Result:
    """Train a run to its end, here and now; Interrupted if it is stopped before."""
    run = Run(path)
    # A run that diverges says so in its result, as the paper's ablation has it.
    with contextlib.suppress(DivergedError):
        try:
            for record in work(begin(run, config), stopped):
                stepped(record.step)
        except torch.OutOfMemoryError as error:
            raise RunError(f"{path}: out of memory; fewer --jobs, or a smaller --scale") from error
    result = run.result()
    if result is None:
        raise Interrupted(GO_ON)
    return result


def with_threads(config: Config, threads: int) -> Config:
    """The same run on this many threads, unless it says how many it wants."""
    execution = config.execution
    return replace(config, execution=replace(execution, threads=execution.threads or threads))


# --- processes on this machine ------------------------------------------------------------------------------

_here: dict[str, Any] = {}  # in a worker: the queue for its steps, the event that stops it, and its parent


class Processes:
    """A crew of processes on this machine."""

    def __init__(self, pool: ProcessPoolExecutor, jobs: int, queue: Any, stopping: Any) -> None:
        self._pool = pool
        self._threads = max(1, (os.cpu_count() or 1) // jobs)
        self._queue = queue
        self._stopping = stopping

    def submit(self, number: int, path: Path, config: Config) -> "Future[Result]":
        """Hand over a run."""
        return self._pool.submit(_work, number, path, with_threads(config, self._threads))

    def steps(self) -> list[tuple[int, int]]:
        """What has come through the queue."""
        news = []
        while not self._queue.empty():
            news.append(self._queue.get())
        return news

    def stop(self) -> None:
        """Ask all of them to leave."""
        self._stopping.set()


@contextlib.contextmanager
def processes(jobs: int, *, fresh: bool) -> Iterator[Processes]:
    """So many workers; where memory is measured, each run in a fresh process, with nothing left from another."""
    context = multiprocessing.get_context("spawn")
    queue, stopping = context.Queue(), context.Event()
    arguments = (queue, stopping, os.getpid())
    with ProcessPoolExecutor(jobs, context, _enter, arguments, max_tasks_per_child=1 if fresh else None) as pool:
        yield Processes(pool, jobs, queue, stopping)


def _enter(queue: Any, stopping: Any, parent: int) -> None:
    """A worker leaves signals to its parent, who tells it when to stop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _here.update(queue=queue, stopping=stopping, parent=parent)


def _work(number: int, path: Path, config: Config) -> Result:
    def stopped() -> bool:
        return bool(_here["stopping"].is_set()) or os.getppid() != _here["parent"]

    return result_of(path, config, stopped, lambda step: _here["queue"].put((number, step)))
