"""Predictions on a Ray cluster: pieces of the files on any of its machines, in the order of the files.

All machines see the files and the run, and have rankingmatch installed. If a worker is lost, its piece alone is
predicted again.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankingmatch.core.errors import RankingMatchError, RunError
from rankingmatch.core.import_path import trust_files
from rankingmatch.data.decode import files_at_once
from rankingmatch.data.image_files import ImageFile
from rankingmatch.runs.directory import Run
from rankingmatch.runs.model import ModelInfo
from rankingmatch.runs.predict import FilePredictions, predict_files
from rankingmatch.runs.ray_connection import ray_connection

__all__ = ["predict_on_ray"]

RETRIES = 3  # of a piece whose worker is lost
GROUPS = 8  # in a piece, of files that are decoded together
AHEAD = 2  # pieces for each CPU that are under way or wait to be written

Piece = list[FilePredictions] | RankingMatchError


def predict_on_ray(
    run: Path,
    info: ModelInfo,
    files: Iterable[ImageFile],
    *,
    best: bool = False,
    device: str | None = None,
    count: int = 0,
    address: str | None = None,
    trust: bool = False,
) -> Iterator[FilePredictions]:
    """Predict image files in order, as `predict_files` does, in the batches in which it does.

    Parameters
    ----------
    run, best
        A run directory, and whether to use its best weights.
    info
        Its model, as `load_model` returns it.
    files
        Paths of images, as seen from the current directory, or images in shards.
    device
        The device on the machines of the cluster; with "cuda", each piece takes a GPU.
    count
        The number of files, if it is known.
    address
        The address of the cluster; without one, this machine becomes a cluster.
    trust
        Whether import paths in the run may be imported.
    """
    names, size = iter(files), GROUPS * files_at_once(info.shape)
    pieces = iter(lambda: list(islice(names, size)), [])
    with ray_connection(address) as ray:
        gpus = 1 if (device or "").startswith("cuda") else 0
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=False)(_predict)
        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        started = (task.remote(run, best, device, count, piece, Path.cwd(), trust) for piece in pieces)
        pending = deque(islice(started, most))
        while pending:
            answer = _answer(ray, pending.popleft())
            pending.extend(islice(started, 1))
            yield from answer


def _answer(ray: Any, reference: Any) -> list[FilePredictions]:
    """The predictions of a piece; raises the error of its worker."""
    try:
        piece: Piece = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise RunError(f"a worker failed: {error.cause}") from error
    except ray.exceptions.RayError as error:
        raise RunError(f"a piece was lost {RETRIES + 1} times, possibly for lack of memory ({error})") from error
    if isinstance(piece, RankingMatchError):
        raise piece
    return piece


# --- in a worker --------------------------------------------------------------------------------------------


def _predict(
    run: Path, best: bool, device: str | None, count: int, files: list[ImageFile], directory: Path, trust: bool
) -> Piece:
    """The predictions of some files, named as seen from a directory; a user's mistake is returned, not raised."""
    os.chdir(directory)
    torch.set_num_threads(1)
    if trust:
        trust_files()
    try:
        model, info, where = _load(run, best, device)
        return list(predict_files(model, info, files, where, count))
    except RankingMatchError as error:
        return error


@lru_cache(maxsize=1)
def _load(run: Path, best: bool, device: str | None) -> tuple[nn.Module, ModelInfo, torch.device]:
    """The model, kept for the next piece of the same worker."""
    where = Run(run).config().device(device)
    return *Run(run).load_model(where, best=best), where
