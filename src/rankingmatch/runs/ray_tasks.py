"""Tasks on a Ray cluster whose results come in their order; a lost worker costs its task only."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from rankingmatch.core.errors import RankingMatchError, RunError

__all__ = ["in_order", "make_task"]

RETRIES = 3  # of a task whose worker is lost
AHEAD = 2  # tasks for each CPU that are under way, or whose results wait


def make_task(ray: Any, function: Any, device: str) -> Any:
    """A function as a task that takes a CPU and, with a device such as "cuda:0", a GPU."""
    gpus = 1 if device.startswith("cuda") else 0
    return ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=False)(function)


def in_order(ray: Any, started: Iterable[Any]) -> Iterator[Any]:
    """The results of tasks in their order; only a few are started ahead. An error of a worker is raised here."""
    references = iter(started)
    pending = deque(islice(references, AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))))
    while pending:
        result = _result(ray, pending.popleft())
        pending.extend(islice(references, 1))
        yield result


def _result(ray: Any, reference: Any) -> Any:
    """The result of a task; a user's mistake is returned by a worker, and raised here."""
    try:
        result = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise RunError(f"a worker failed: {error.cause}") from error
    except ray.exceptions.RayError as error:
        raise RunError(f"a piece was lost {RETRIES + 1} times, possibly for lack of memory ({error})") from error
    if isinstance(result, RankingMatchError):
        raise result
    return result
