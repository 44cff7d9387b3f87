"""Workers on a Ray cluster: runs of a grid on any of its machines, each with the resources it needs.

All machines share the file system of the run directories and have rankingmatch installed. A run whose machine is lost
is restarted on another one from its last checkpoint.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankingmatch.bench.grid import RUN_AGAIN, train_to_result, with_threads
from rankingmatch.core.errors import ConfigError, Interrupted, RankingMatchError, RunError, setting
from rankingmatch.runs.config import Plan
from rankingmatch.runs.ray import RETRIES, error_of, import_ray, ray_connection
from rankingmatch.runs.result import Result

SECONDS_BETWEEN_UPDATES = 1.0  # of a run: each is a message over the network


@dataclass(frozen=True)
class Resources:
    """The resources of a run, and the address of the cluster; without one, this machine becomes a cluster."""

    address: str | None = None
    cpus: int = 1
    gpus: float = 0.0


class _Board:
    """Shared by the workers: the steps they have reached, and whether to stop."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int]] = []
        self.stopping = False

    def note(self, *reached: tuple[str, int]) -> bool:
        self.steps += reached
        return self.stopping

    def take(self) -> list[tuple[str, int]]:
        steps, self.steps = self.steps, []
        return steps

    def stop(self) -> None:
        self.stopping = True


class Cluster:
    """Workers of a Ray cluster."""

    def __init__(self, ray: Any, needs: Resources) -> None:
        self._ray = ray
        self._needs = needs
        self._board: Any = None  # created for the first run, and again after a stop
        self._stopped = True

    @property
    def at_a_time(self) -> int:
        """The number of runs that fit on the cluster at a time."""
        available = self._ray.cluster_resources()
        fitting = [available.get("CPU", 0) // self._needs.cpus]
        fitting += [available.get("GPU", 0) // self._needs.gpus] if self._needs.gpus else []
        return int(min(fitting))

    def submit(self, path: Path, plan: Plan) -> "Future[Result]":
        """Submit a run; it is submitted again if its worker is lost or its directory cannot be reached."""
        if self._stopped:
            self._board, self._stopped = self._ray.remote(num_cpus=0)(_Board).remote(), False
        task = self._ray.remote(
            num_cpus=self._needs.cpus,
            num_gpus=self._needs.gpus,
            max_retries=RETRIES,
            retry_exceptions=[RunError, OSError],
            max_calls=int(plan.config.execution.measure_steps),  # 1: each run in a process of its own
        )(_train)
        plan = with_threads(plan, self._needs.cpus)
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()

        def pass_on(answer: "Future[Any]") -> None:
            error = answer.exception()
            found = error_of(self._ray, error, f"{path}: the run") if error else answer.result()
            if isinstance(found, BaseException):
                future.set_exception(found)
            else:
                future.set_result(found)

        task.remote(self._board, path.absolute(), plan, Path.cwd()).future().add_done_callback(pass_on)
        return future

    def steps(self) -> list[tuple[str, int]]:
        """The steps reached since the last call."""
        return list(self._ray.get(self._board.take.remote()))

    def stop(self) -> None:
        """Ask all workers to stop."""
        self._stopped = True
        self._ray.get(self._board.stop.remote())


@contextmanager
def connected(needs: Resources) -> Iterator[Cluster]:
    """Connect to the cluster at an address, or start one on this machine; an existing connection is reused."""
    with ray_connection(needs.address) as ray:
        cluster = Cluster(ray, needs)
        if cluster.at_a_time < 1:  # Ray would wait forever for another machine
            available = ray.cluster_resources()
            raise ConfigError(
                f"{setting('cpus_per_run')} {needs.cpus} and {setting('gpus_per_run')} {needs.gpus:g} are more than "
                f"the cluster has: {available.get('CPU', 0):g} CPUs and {available.get('GPU', 0):g} GPUs"
            )
        yield cluster


# --- in a worker --------------------------------------------------------------------------------------------


def _train(board: Any, path: Path, plan: Plan, directory: Path) -> "Result | BaseException":
    """Train a run, in the directory from which the grid was started.

    A user's mistakes are returned rather than raised, because trying again would not help.
    """
    ray, updated, stopping = import_ray(), 0.0, False
    os.chdir(directory)

    def update(step: int) -> None:
        nonlocal updated, stopping
        if time.monotonic() - updated >= SECONDS_BETWEEN_UPDATES:
            stopping, updated = ray.get(board.note.remote((path.name, step))), time.monotonic()

    if ray.get(board.note.remote()):
        return Interrupted(RUN_AGAIN)
    try:
        return train_to_result(path, plan, lambda: stopping, update)
    except RunError:
        raise
    except RankingMatchError as error:
        return error
