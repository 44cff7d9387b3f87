"""The batch of a step, from rows to views: a function of (seed, step)."""

import numpy as np
import torch
from torch import Tensor

from rankingmatch.augment import Policy
from rankingmatch.data import Split, rows_of_step
from rankingmatch.methods import Batch, Method
from rankingmatch.networks import to_tensor
from rankingmatch.randomness import Purpose, torch_generator
from rankingmatch.state import TrainSettings


def make_batch(
    split: Split,
    method: Method,
    views: dict[str, Policy],
    settings: TrainSettings,
    step: int,
    device: torch.device,
) -> tuple[Batch, Tensor]:
    """The batch of a step and the truth of its unlabeled rows (-1 where unknown): a function of (seed, step)."""
    labeled = rows_of_step(split.labeled_rows, settings.batch_size, settings.seed, Purpose.LABELED_ROWS, step)
    generator = torch_generator(settings.seed, Purpose.LABELED_VIEWS, step)
    labels = torch.from_numpy(split.labels[labeled]).to(device)
    labeled_views = _views(split.images[labeled], method.labeled_views, views, generator, device)
    if not method.unlabeled_views:
        return Batch(labeled_views, labels), torch.empty(0, dtype=torch.long, device=device)
    count = settings.mu * settings.batch_size
    places = np.arange(len(split.unlabeled_rows))
    place = rows_of_step(places, count, settings.seed, Purpose.UNLABELED_ROWS, step)
    rows = split.unlabeled_rows[place]
    generator = torch_generator(settings.seed, Purpose.UNLABELED_VIEWS, step)
    unlabeled_views = _views(split.images[rows], method.unlabeled_views, views, generator, device)
    batch = Batch(labeled_views, labels, unlabeled_views, torch.from_numpy(place).to(device))
    return batch, torch.from_numpy(split.truth[rows]).to(device)


def _views(
    images: np.ndarray,
    names: tuple[str, ...],
    views: dict[str, Policy],
    generator: torch.Generator,
    device: torch.device,
) -> tuple[Tensor, ...]:
    tensor = to_tensor(images, device)
    count, _, height, width = tensor.shape
    return tuple(views[name].apply(tensor, views[name].draw(count, height, width, generator)) for name in names)
