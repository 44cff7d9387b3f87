"""Work on a Ray cluster: pieces of it on any of its machines; a lost worker costs its piece only."""

import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import lru_cache
from itertools import islice
from typing import Any, TextIO

import numpy as np
import torch

from rankingmatch.core.errors import ConfigError, RankingMatchError, RunError, first_line, setting, unknown_name
from rankingmatch.networks import to_tensor
from rankingmatch.training.banks import AT_ONCE, Compute, Frozen, View

STORE = 100 * 2**20  # bytes: only pieces and results pass through it
RETRIES = 3  # of a piece whose worker is lost
AHEAD = 2  # pieces for each CPU that are under way, or whose results wait
PIECE = 2**24  # bytes of the images in a piece of a bank, or one batch if that is more


def import_ray(option: str = "on") -> Any:
    """Ray; ConfigError, which names the option that needs it, if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"{setting(option)} ray needs Ray; install it: pip install 'rankingmatch[ray]'") from error
    return ray


def require_place(option: str, on: str, address: str | None) -> None:
    """Raise ConfigError unless something can be computed where an option says: "here", or on "ray"."""
    if on not in ("here", "ray"):
        raise unknown_name(f"value for {setting(option)}", on, ("here", "ray"))
    if on == "ray":
        import_ray(option)
    elif address is not None:
        raise ConfigError(f"{setting('ray_address')} needs {setting(option)} ray")


@contextmanager
def ray_connection(address: str | None) -> Iterator[Any]:
    """Connect to the cluster at an address, or start one on this machine; an existing connection is reused."""
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    local = {"num_cpus": os.cpu_count(), "include_dashboard": False, "object_store_memory": STORE}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **({} if address else local))
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise ConfigError(f"{setting('ray_address')} {address}: there is no cluster ({first_line(error)})") from error
    with redirect_stdout(WithoutRay(sys.stdout)):
        try:
            yield ray
        finally:
            ray.shutdown()  # which prints what it still has to say


class WithoutRay:
    """Standard output, without what Ray's threads print there about lost workers, which goes to standard error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text where it belongs."""
        from_ray = threading.current_thread().name.startswith("ray_")
        return (sys.stderr if from_ray else self._stream).write(text)


def error_of(ray: Any, error: BaseException, piece: str = "a piece of the work") -> BaseException:
    """The error to raise for one of a task: a user's mistake as the worker raised it, others in words."""
    if isinstance(error, ray.exceptions.RayTaskError):
        cause = error.cause
        return cause if isinstance(cause, RankingMatchError | OSError) else RunError(f"a worker failed: {cause}")
    if isinstance(error, ray.exceptions.RayError):
        return RunError(f"{piece} was lost {RETRIES + 1} times, possibly for lack of memory ({error})")
    return error


def map_in_order(
    ray: Any, function: Callable[..., Any], pieces: Iterable[tuple[Any, ...]], device: str
) -> Iterator[Any]:
    """The results of a function for pieces, its arguments, in their order; only a few are started ahead.

    Each takes a CPU and, with a device such as "cuda:0", a GPU.
    """
    gpus = 1 if device.startswith("cuda") else 0
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, max_calls=0)(function)  # 0: it keeps its process
    started = (task.remote(*piece) for piece in pieces)
    pending = deque(islice(started, AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))))
    while pending:
        try:
            result = ray.get(pending.popleft())
        except ray.exceptions.RayError as error:
            raise error_of(ray, error) from error
        pending.extend(islice(started, 1))
        yield result


# --- banks of views -----------------------------------------------------------------------------------------


@contextmanager
def banks_on_ray(address: str | None) -> Iterator[Compute]:
    """A way for `make_bank` to compute on a cluster, which is connected to when there is something to compute.

    The machines need neither the images nor the run: both are sent to them. The maps are those of one process that has
    one thread.
    """
    import_ray("bank_on")
    with ExitStack() as stack:
        connect = lru_cache(lambda: stack.enter_context(ray_connection(address)))
        send = lru_cache(lambda frozen: connect().put(frozen))

        def compute(frozen: Frozen, view: View, images: np.ndarray) -> Iterator[np.ndarray]:
            size = AT_ONCE * max(1, PIECE // (AT_ONCE * math.prod(images.shape[1:])))
            # In a list, a reference is passed on as it is: a worker fetches the network once, not for each piece.
            pieces = (
                ([send(frozen)], view, np.array(images[first : first + size]), first)
                for first in range(0, len(images), size)
            )
            for maps in map_in_order(connect(), _maps, pieces, str(frozen.device)):
                yield from maps

        yield compute


def _maps(shared: list[Any], view: View, images: np.ndarray, first: int) -> list[np.ndarray]:
    """In a worker: the maps of a piece, in batches."""
    torch.set_num_threads(1)
    frozen = _fetch(shared[0])
    if len(images) == 1:  # ONNX Runtime takes over at a batch of two or more; other workers have had one
        frozen.maps(to_tensor(np.repeat(images, 2, axis=0), frozen.device))
    return [batch.astype(np.float16) for batch in frozen.batches(view, images, first)]


@lru_cache(maxsize=1)
def _fetch(reference: Any) -> Frozen:
    """The network, kept for the next piece of the same worker."""
    frozen: Frozen = import_ray("bank_on").get(reference)
    return frozen
