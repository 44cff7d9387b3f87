"""A grid carried out: its runs one after the other, or several at a time in processes of their own."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch

from rankingmatch.config import Config
from rankingmatch.data import benchmark
from rankingmatch.display import signals_noted
from rankingmatch.errors import ConfigError, DivergedError, Interrupted, RunError
from rankingmatch.job import begin, work
from rankingmatch.recipe import Cell
from rankingmatch.run import Result, Run

GO_ON = "stopped; to go on: run the same command again"


class Watcher(Protocol):
    """Something that follows a grid; runs are known by their place in it."""

    def stepped(self, number: int, step: int) -> None:
        """A run has come to this step."""

    def finished(self, number: int, result: Result) -> None:
        """A run has come to its end."""


def run_grid(grid: list[Cell], out: Path, jobs: int, watcher: Watcher) -> list[Result]:
    """The results of all runs of a grid: kept where they are there, else trained, from a checkpoint if there is one.

    Anything that the settings or the data get wrong comes up before the first run begins.
    """
    results: dict[int, Result] = {}
    for number, cell in enumerate(grid):
        run = Run(out / cell.directory)
        if run.exists() and not run.config().learns_as(cell.config):
            raise ConfigError(f"{run.path} was run with other settings; choose another --out or remove it")
        result = run.result()
        if result is not None:
            results[number] = result
    todo = {number: cell for number, cell in enumerate(grid) if number not in results}
    for name, place, side in {
        (cell.config.dataset, cell.config.execution.data_path(), cell.config.data.image_size) for cell in todo.values()
    }:
        benchmark(name).load(place, side)  # downloaded and decoded once, not once in each process
    with signals_noted() as stopped:
        measuring = any(cell.config.execution.measure_steps for cell in todo.values())
        if jobs == 1 and not measuring:
            for number, cell in todo.items():
                results[number] = _result(out / cell.directory, cell.config, stopped, _stepped(watcher, number))
                watcher.finished(number, results[number])
        else:
            results |= _in_processes(todo, out, jobs, watcher, stopped, fresh=measuring)
    return [results[number] for number in range(len(grid))]


def _stepped(watcher: Watcher, number: int) -> Callable[[int], None]:
    return lambda step: watcher.stepped(number, step)


def _result(path: Path, config: Config, stopped: Callable[[], bool], stepped: Callable[[int], None]) -> Result:
    """Train a run to its end; Interrupted if it is stopped before."""
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


# --- several at a time --------------------------------------------------------------------------------------

_here: dict[str, Any] = {}  # in a worker: the queue for its steps, the event that stops it, and its parent


def _in_processes(
    todo: dict[int, Cell], out: Path, jobs: int, watcher: Watcher, stopped: Callable[[], bool], *, fresh: bool
) -> dict[int, Result]:
    """Several runs at a time; where memory is measured, each in a fresh process, with nothing left from another."""
    context = multiprocessing.get_context("spawn")
    steps, stop = context.Queue(), context.Event()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    arguments = (steps, stop, os.getpid())
    with ProcessPoolExecutor(jobs, context, _enter, arguments, max_tasks_per_child=1 if fresh else None) as pool:
        futures: dict[Future[Result], int] = {
            pool.submit(_work, number, out / cell.directory, _with_threads(cell.config, threads)): number
            for number, cell in todo.items()
        }
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            while not steps.empty():
                watcher.stepped(*steps.get())
            for future in done:
                try:
                    results[futures[future]] = future.result()
                    watcher.finished(futures[future], results[futures[future]])
                except BaseException as error:
                    failures.append(error)
            if stopped() or failures:  # whatever is under way writes a checkpoint and leaves
                stop.set()
                pending = {future for future in pending if not future.cancel()}
    for failure in failures:
        if isinstance(failure, BrokenProcessPool):
            raise RunError("a run was killed from outside, for lack of memory perhaps; try fewer --jobs") from failure
        if not isinstance(failure, Interrupted):
            raise failure
    if len(results) < len(todo):
        raise Interrupted(GO_ON)
    return results


def _with_threads(config: Config, threads: int) -> Config:
    execution = config.execution
    return replace(config, execution=replace(execution, threads=execution.threads or threads))


def _enter(steps: Any, stop: Any, parent: int) -> None:
    """A worker leaves signals to its parent, who tells it when to stop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _here.update(steps=steps, stop=stop, parent=parent)


def _work(number: int, path: Path, config: Config) -> Result:
    def stopped() -> bool:
        return bool(_here["stop"].is_set()) or os.getppid() != _here["parent"]

    return _result(path, config, stopped, lambda step: _here["steps"].put((number, step)))
