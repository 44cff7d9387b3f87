"""Banks of views on a Ray cluster: pieces of the images on any of its machines, in the order of the images.

The machines need rankingmatch, but neither the images nor the run: both are sent to them.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from rankingmatch.core.errors import RankingMatchError
from rankingmatch.networks import to_tensor
from rankingmatch.runs.ray_connection import import_ray, ray_connection
from rankingmatch.runs.ray_tasks import in_order, make_task
from rankingmatch.training.banks import AT_ONCE, Compute, Frozen, View

__all__ = ["banks_on_ray"]

PIECE = 2**24  # bytes of the images that a task gets, or one batch if that is more


@contextmanager
def banks_on_ray(address: str | None) -> Iterator[Compute]:
    """A way to compute banks on a cluster, which is connected to when there is something to compute.

    Parameters
    ----------
    address
        The address of the cluster; without one, this machine becomes a cluster.

    Yields
    ------
    Compute
        For `make_bank`. The maps are those of one process that has one thread.

    Raises
    ------
    ConfigError
        If Ray is not installed, or if there is no cluster.
    """
    import_ray("bank_on")
    with ExitStack() as stack:
        connect = lru_cache(lambda: stack.enter_context(ray_connection(address)))
        send = lru_cache(lambda frozen: connect().put(frozen))

        def compute(frozen: Frozen, view: View, images: np.ndarray) -> Iterator[np.ndarray]:
            task = make_task(connect(), _maps, str(frozen.device))
            size = AT_ONCE * max(1, PIECE // (AT_ONCE * math.prod(images.shape[1:])))
            # In a list, a reference is passed on as it is: a worker fetches the network once, not for each piece.
            started = (
                task.remote([send(frozen)], view, np.array(images[first : first + size]), first)
                for first in range(0, len(images), size)
            )
            for piece in in_order(connect(), started):
                yield from piece

        yield compute


# --- in a worker --------------------------------------------------------------------------------------------


def _maps(shared: list[Any], view: View, images: np.ndarray, first: int) -> list[np.ndarray] | RankingMatchError:
    """The maps of a piece, in batches; a user's mistake is returned, not raised."""
    torch.set_num_threads(1)
    try:
        frozen = _fetch(shared[0])
        if len(images) == 1:  # ONNX Runtime takes over at a batch of two or more; other workers have had one
            frozen.maps(to_tensor(np.repeat(images, 2, axis=0), frozen.device))
        return [batch.astype(np.float16) for batch in frozen.batches(view, images, first)]
    except RankingMatchError as error:
        return error


@lru_cache(maxsize=1)
def _fetch(reference: Any) -> Frozen:
    """The network, kept for the next piece of the same worker."""
    frozen: Frozen = import_ray("bank_on").get(reference)
    return frozen
