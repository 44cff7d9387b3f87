"""Predictions on a Ray cluster: pieces of the files on any of its machines, in the order of the files.

All machines see the files and the run, and have rankingmatch installed. If a worker is lost, its piece alone is
predicted again.
"""

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

import torch
from torch import nn

from rankingmatch.core.imports import trust_files
from rankingmatch.data import ImageFile
from rankingmatch.data.decode import files_at_once
from rankingmatch.runs.directory import Run
from rankingmatch.runs.model import ModelInfo
from rankingmatch.runs.predict import FilePredictions, predict_files
from rankingmatch.runs.ray import map_in_order, ray_connection

__all__ = ["predict_on_ray"]

GROUPS = 8  # in a piece, of files that are decoded together


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
        arguments = ((run, best, device, count, piece, Path.cwd(), trust) for piece in pieces)
        for batches in map_in_order(ray, _predict, arguments, device or ""):
            yield from batches


# --- in a worker --------------------------------------------------------------------------------------------


def _predict(
    run: Path, best: bool, device: str | None, count: int, files: list[ImageFile], directory: Path, trust: bool
) -> list[FilePredictions]:
    """The predictions of some files, named as seen from a directory."""
    os.chdir(directory)
    torch.set_num_threads(1)
    if trust:
        trust_files()
    model, info, where = _load(run, best, device)
    return list(predict_files(model, info, files, where, count))


@lru_cache(maxsize=1)
def _load(run: Path, best: bool, device: str | None) -> tuple[nn.Module, ModelInfo, torch.device]:
    """The model, kept for the next piece of the same worker."""
    where = Run(run).config().device(device)
    return *Run(run).load_model(where, best=best), where
