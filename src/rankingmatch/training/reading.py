"""Images of a step in memory: on an accelerator, those of the next step are read while this one is computed."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankingmatch.core.distributed import own_rows
from rankingmatch.core.randomness import Purpose
from rankingmatch.data import Split, indices_of_step, rows_of_step
from rankingmatch.methods import Method
from rankingmatch.networks import to_tensor
from rankingmatch.training.settings import TrainSettings

__all__ = ["StepImages", "draw_labeled", "read_images", "read_steps", "unlabeled_positions"]

CPU = torch.device("cpu")


class StepImages(NamedTuple):
    """The uint8 images (n, c, h, w) of this process's rows of a step, before augmentation, on the CPU."""

    labeled: Tensor
    unlabeled: Tensor | None


def read_images(split: Split, method: Method, settings: TrainSettings, pinned: bool, step: int) -> StepImages:
    """Read the images of a step; pinned memory can be copied to an accelerator while it computes."""

    def read(rows: np.ndarray) -> Tensor:
        images = to_tensor(split.images[own_rows(rows)], CPU)
        return images.pin_memory() if pinned else images

    labeled, _ = draw_labeled(split, method, settings, step)
    if not method.unlabeled_views:
        return StepImages(read(labeled), None)
    return StepImages(read(labeled), read(split.unlabeled_rows[unlabeled_positions(split, settings, step)]))


def draw_labeled(split: Split, method: Method, settings: TrainSettings, step: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows (B,) of the labeled images of a step, among them those that the method has labeled, and their labels."""
    pool, labels = split.drawn_rows, split.labels
    if method.given_labels is not None:
        given = method.given_labels.cpu().numpy()
        added = (given >= 0) & (labels[split.unlabeled_rows] < 0)  # labeled images may be in the unlabeled pool, too
        rows = split.unlabeled_rows[added]
        pool, labels = np.concatenate([pool, rows]), labels.copy()
        labels[rows] = given[added]
    drawn = rows_of_step(pool, settings.batch_size, settings.seed, Purpose.LABELED_ROWS, step)
    return drawn, labels[drawn]


def unlabeled_positions(split: Split, settings: TrainSettings, step: int) -> np.ndarray:
    """Which of the unlabeled images a step draws (μB,)."""
    size = settings.mu * settings.batch_size
    return indices_of_step(len(split.unlabeled_rows), size, settings.seed, Purpose.UNLABELED_ROWS, step)


def read_steps(read: Callable[[int], StepImages], first: int, ahead: bool) -> Iterator[StepImages]:
    """The images of the first step and all following ones; `ahead`: read in a thread while those before are used."""
    if not ahead:
        yield from map(read, count(first))
        return
    with ThreadPoolExecutor(1, "reading") as thread:
        following = thread.submit(read, first)
        for step in count(first + 1):
            current, following = following, thread.submit(read, step)
            yield current.result()
