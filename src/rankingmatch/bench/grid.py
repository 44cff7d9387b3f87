"""A grid carried out: its runs one after the other, or several at a time by a crew."""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Protocol

from rankingmatch.bench.recipe import Cell
from rankingmatch.bench.workers import GO_ON, Crew, processes, result_of
from rankingmatch.core.errors import ConfigError, Interrupted, RunError
from rankingmatch.runs.directory import Result, Run
from rankingmatch.runs.display import signals_noted
from rankingmatch.runs.job import load_dataset


class Watcher(Protocol):
    """Something that follows a grid; runs are known by their place in it."""

    def stepped(self, number: int, step: int) -> None:
        """A run has come to this step."""

    def finished(self, number: int, result: Result) -> None:
        """A run has come to its end."""


def run_grid(grid: list[Cell], out: Path, jobs: int, watcher: Watcher, crew: Crew | None = None) -> list[Result]:
    """The results of all runs of a grid: kept where they are there, else trained, from a checkpoint if there is one.

    A crew takes them if there is one, else `jobs` processes. Anything that the settings or the data get wrong comes up
    before the first run begins.
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
    loaded = set()
    for cell in todo.values():
        data = cell.config.data
        key = (cell.config.dataset, cell.config.execution.data_dir, data.image_size, data.unlabeled, data.labels_csv)
        if key not in loaded:
            load_dataset(cell.config)  # downloaded and decoded once, not once in each process
            loaded.add(key)
    with signals_noted() as stopped:
        measuring = any(cell.config.execution.measure_steps for cell in todo.values())
        if crew is not None:
            results |= _handed_out(crew, todo, out, watcher, stopped)
        elif jobs > 1 or measuring:
            with processes(jobs, fresh=measuring) as own_crew:
                results |= _handed_out(own_crew, todo, out, watcher, stopped)
        else:
            for number, cell in todo.items():
                results[number] = result_of(out / cell.directory, cell.config, stopped, _stepped(watcher, number))
                watcher.finished(number, results[number])
    return [results[number] for number in range(len(grid))]


def _stepped(watcher: Watcher, number: int) -> Callable[[int], None]:
    return lambda step: watcher.stepped(number, step)


def _handed_out(
    crew: Crew, todo: dict[int, Cell], out: Path, watcher: Watcher, stopped: Callable[[], bool]
) -> dict[int, Result]:
    """The results of runs that a crew takes, several at a time; the first failure stops all."""
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    futures = {crew.submit(number, out / cell.directory, cell.config): number for number, cell in todo.items()}
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        for number, step in crew.steps():
            watcher.stepped(number, step)
        for future in done:
            try:
                results[futures[future]] = future.result()
                watcher.finished(futures[future], results[futures[future]])
            except BaseException as error:
                failures.append(error)
        if stopped() or failures:  # whatever is under way writes a checkpoint and leaves
            crew.stop()
            pending = {future for future in pending if not future.cancel()}
    for failure in failures:
        if isinstance(failure, BrokenProcessPool):
            raise RunError("a run was killed from outside, for lack of memory perhaps; try fewer --jobs") from failure
        if not isinstance(failure, Interrupted):
            raise failure
    if len(results) < len(todo):
        raise Interrupted(GO_ON)
    return results
