"""A crew on a Ray cluster: runs of a grid on whatever machines it has, each with the resources it asks for.

The machines share the file system of the run directories, and have rankingmatch installed. A run whose machine is lost
is begun again on another, and goes on from its checkpoint.
"""

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankingmatch.bench.workers import GO_ON, result_of, with_threads
from rankingmatch.core.errors import ConfigError, Interrupted, RankingMatchError, RunError
from rankingmatch.runs.config import Config
from rankingmatch.runs.directory import Result

RETRIES = 3
SECONDS_BETWEEN_NEWS = 1.0  # of a run: each is a message over the network
STORE = 100 * 2**20  # bytes: only settings and results pass through it


@dataclass(frozen=True)
class Resources:
    """What a run needs, and the address of the cluster; without one, a cluster is made of this machine."""

    address: str | None = None
    cpus: int = 1
    gpus: float = 0.0


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--on ray needs Ray; get it with: pip install 'rankingmatch[ray]'") from error
    return ray


class _Board:
    """Where workers write down how far they are, and read whether to stop."""

    def __init__(self) -> None:
        self.news: list[tuple[int, int]] = []
        self.stopping = False

    def note(self, number: int, step: int) -> bool:
        self.news.append((number, step))
        return self.stopping

    def is_stopping(self) -> bool:
        return self.stopping

    def take(self) -> list[tuple[int, int]]:
        news, self.news = self.news, []
        return news

    def stop(self) -> None:
        self.stopping = True


class Cluster:
    """A crew of Ray's workers."""

    def __init__(self, ray: Any, needs: Resources) -> None:
        self._ray = ray
        self._needs = needs
        self._board: Any = None  # made for the first run, and anew for those that come after a stop
        self._stopped = True

    @property
    def at_a_time(self) -> int:
        """How many runs the cluster has room for."""
        there = self._ray.cluster_resources()
        rooms = [there.get("CPU", 0) // self._needs.cpus]
        rooms += [there.get("GPU", 0) // self._needs.gpus] if self._needs.gpus else []
        return int(min(rooms))

    def submit(self, number: int, path: Path, config: Config) -> "Future[Result]":
        """Hand over a run; it is handed over again if its worker is lost or its directory cannot be reached."""
        if self._stopped:
            self._board, self._stopped = self._ray.remote(num_cpus=0)(_Board).remote(), False
        task = self._ray.remote(
            num_cpus=self._needs.cpus,
            num_gpus=self._needs.gpus,
            max_retries=RETRIES,
            retry_exceptions=[RunError, OSError],
            max_calls=1 if config.execution.measure_steps else 0,
        )(_work)
        config = with_threads(config, self._needs.cpus)
        answer = task.remote(self._board, number, path.absolute(), config, Path.cwd()).future()
        future: Future[Result] = Future()
        answer.add_done_callback(lambda done: self._pass_on(done, future, path))
        future.set_running_or_notify_cancel()
        return future

    def _pass_on(self, answer: "Future[Any]", future: "Future[Result]", path: Path) -> None:
        """The result, or the error as it was where it happened."""
        error: Any = answer.exception()
        if error is None and isinstance(answer.result(), BaseException):
            error = answer.result()
        if isinstance(error, self._ray.exceptions.RayTaskError):
            error = error.cause
        elif isinstance(error, self._ray.exceptions.RayError):
            error = RunError(f"{path}: the run was lost {RETRIES + 1} times, for lack of memory perhaps ({error})")
        if error is None:
            future.set_result(answer.result())
        else:
            future.set_exception(error)

    def steps(self) -> list[tuple[int, int]]:
        """What is new on the board."""
        return list(self._ray.get(self._board.take.remote()))

    def stop(self) -> None:
        """Ask all of them to leave."""
        self._stopped = True
        self._ray.get(self._board.stop.remote())


@contextmanager
def connected(needs: Resources) -> Iterator[Cluster]:
    """The cluster at an address, or one of this machine alone for the time being; one that is in use is used on."""
    ray = _ray()
    if ray.is_initialized():
        yield _checked(Cluster(ray, needs), ray, needs)
        return
    local = {"num_cpus": os.cpu_count(), "include_dashboard": False, "object_store_memory": STORE}
    try:
        ray.init(
            address=needs.address or "local",
            log_to_driver=False,
            logging_level="ERROR",
            **({} if needs.address else local),
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"--ray-address {needs.address}: there is no cluster ({reason})") from error
    try:
        yield _checked(Cluster(ray, needs), ray, needs)
    finally:
        ray.shutdown()


def _checked(cluster: Cluster, ray: Any, needs: Resources) -> Cluster:
    """The cluster, if it has room for a run: Ray would wait for ever for another machine."""
    if cluster.at_a_time < 1:
        there = ray.cluster_resources()
        raise ConfigError(
            f"--cpus-per-run {needs.cpus}, --gpus-per-run {needs.gpus:g}: the cluster has not that much; it has "
            f"{there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs"
        )
    return cluster


# --- in a worker --------------------------------------------------------------------------------------------


def _work(board: Any, number: int, path: Path, config: Config, place: Path) -> "Result | BaseException":
    """A run, begun or gone on with, in the directory from which the grid was started.

    Mistakes are given back rather than raised: they would only be made again.
    """
    ray, told, stopping = _ray(), 0.0, False
    os.chdir(place)
    sys.path.append(str(place))  # for methods and networks by import path

    def stepped(step: int) -> None:
        nonlocal told, stopping
        if time.monotonic() - told >= SECONDS_BETWEEN_NEWS:
            stopping, told = ray.get(board.note.remote(number, step)), time.monotonic()

    if ray.get(board.is_stopping.remote()):
        return Interrupted(GO_ON)
    try:
        return result_of(path, config, lambda: stopping, stepped)
    except RunError:
        raise
    except (RankingMatchError, Interrupted) as error:
        return error
