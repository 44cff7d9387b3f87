"""Ranking losses whose matrix is divided over the processes that train a run."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rankingmatch.core.distributed import own_rows, shared, summed, world_size

__all__ = ["over_processes"]


def over_processes(loss: Callable[..., Tensor], rows: Tensor, labels: Tensor, **options: Any) -> Tensor:
    """A ranking loss of rows (n, width) and labels (n,) that are the same on all processes.

    With p processes, each computes n/p of the n rows of the matrix, those of its own images as anchors, and the parts
    are summed. Value and gradient are those of the whole loss, on every process.
    """
    if world_size() == 1 or len(rows) < world_size():
        return loss(rows, labels, **options)
    anchors = own_rows(torch.arange(len(labels), device=labels.device))
    return summed(loss(shared(rows), labels, anchors=anchors, **options))
