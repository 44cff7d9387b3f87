"""Running a grid: one run after the other, or several at a time by workers."""

from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Protocol

from rankingmatch.bench.baselines import FeatureCache, fit_to_result
from rankingmatch.bench.recipe import PlannedCell
from rankingmatch.bench.workers import RUN_AGAIN, Workers, train_to_result, worker_processes
from rankingmatch.core.errors import ConfigError, Interrupted, RunError, setting
from rankingmatch.core.terminal import stop_requests
from rankingmatch.data import Dataset
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import load_dataset, split_dataset
from rankingmatch.runs.progress import loading_progress
from rankingmatch.runs.result import Result

__all__ = ["GridDisplay", "existing_results", "load_datasets", "run_grid"]


class GridDisplay(Protocol):
    """Something that shows the progress of a grid; a run is identified by its index in the grid."""

    def update(self, index: int, step: int) -> None:
        """Called when a run has reached a step."""

    def finish(self, index: int, result: Result) -> None:
        """Called when a run is finished."""


def run_grid(
    grid: list[PlannedCell],
    out: Path,
    jobs: int,
    display: GridDisplay,
    workers: Workers | None = None,
    existing: dict[int, Result] | None = None,
) -> list[Result]:
    """The results of all runs of a grid: read if they exist, otherwise trained, from a checkpoint if there is one.

    The workers train them if given, otherwise `jobs` processes. `existing` has the results of runs that are not to be
    trained, by position; by default, those of finished runs in `out`. Mistakes in the settings or the data are reported
    before the first run starts.
    """
    results = existing_results(grid, out) if existing is None else existing
    todo = {index: cell for index, cell in enumerate(grid) if index not in results}
    load_datasets(todo.values())
    with stop_requests() as stopped:
        results = results | _fit_baselines(todo, out, display, stopped)
        todo = {index: cell for index, cell in todo.items() if index not in results}
        measuring = any(cell.config.execution.measure_steps for cell in todo.values())
        if workers is not None:
            results |= _distribute(workers, todo, out, display, stopped)
        elif jobs > 1 or measuring:
            with worker_processes(jobs, fresh=measuring) as processes:
                results |= _distribute(processes, todo, out, display, stopped)
        else:
            for index, cell in todo.items():
                results[index] = train_to_result(out / cell.directory, cell.plan, stopped, _updater(display, index))
                display.finish(index, results[index])
    return [results[index] for index in range(len(grid))]


def existing_results(grid: list[PlannedCell], out: Path) -> dict[int, Result]:
    """The results of finished runs; raises ConfigError if a run directory has other settings than the grid."""
    results: dict[int, Result] = {}
    for index, cell in enumerate(grid):
        run = Run(out / cell.directory)
        if run.exists() and not run.config().learns_like(cell.config):
            raise ConfigError(f"{run.path} was run with other settings; delete it, or choose another {setting('out')}")
        result = run.result()
        if result is not None:
            results[index] = result
    return results


def load_datasets(cells: Iterable[PlannedCell]) -> None:
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


def _fit_baselines(
    todo: dict[int, PlannedCell], out: Path, display: GridDisplay, stopped: Callable[[], bool]
) -> dict[int, Result]:
    """The results of the baselines, which take seconds and share their features: one after the other, here."""
    results: dict[int, Result] = {}
    features = FeatureCache()
    for index, cell in todo.items():
        if cell.baseline is not None:
            if stopped():
                raise Interrupted(RUN_AGAIN)
            results[index] = fit_to_result(cell.baseline, Run(out / cell.directory), cell.plan, features)
            display.finish(index, results[index])
    return results


def _updater(display: GridDisplay, index: int) -> Callable[[int], None]:
    return lambda step: display.update(index, step)


def _distribute(
    workers: Workers, todo: dict[int, PlannedCell], out: Path, display: GridDisplay, stopped: Callable[[], bool]
) -> dict[int, Result]:
    """The results of runs that workers train, several at a time; the first failure stops all."""
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    futures = {workers.submit(index, out / cell.directory, cell.plan): index for index, cell in todo.items()}
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        for index, step in workers.steps():
            display.update(index, step)
        for future in done:
            try:
                results[futures[future]] = future.result()
                display.finish(futures[future], results[futures[future]])
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
    if len(results) < len(todo):
        raise Interrupted(RUN_AGAIN)
    return results
