"""The batch of a step, from rows to views, and probes for learned augmentation: functions of (seed, step).

With several processes, each augments its own rows; `whole_batch` gathers them.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankingmatch.augment import CTADraw, CTAugment, Policy
from rankingmatch.core.distributed import gathered, own_rows
from rankingmatch.core.randomness import Purpose, torch_generator
from rankingmatch.data import Split
from rankingmatch.data.bank import Bank
from rankingmatch.methods import Batch, Method
from rankingmatch.training.reading import StepImages, draw_labeled, read_images, unlabeled_positions
from rankingmatch.training.settings import TrainSettings

Views = dict[str, Policy] | Bank


def make_batch(
    split: Split,
    method: Method,
    views: Views,
    settings: TrainSettings,
    step: int,
    device: torch.device,
    images: StepImages | None = None,
) -> tuple[Batch, Tensor]:
    """The batch of a step, and the true labels of its unlabeled rows (-1 where unknown).

    The views are those of this process's rows; everything else is complete. The images are read unless they are given.
    """
    if images is None and not isinstance(views, Bank):
        images = read_images(split, method, settings, False, step)
    labeled, known = draw_labeled(split, method, settings, step)
    generator = torch_generator(settings.seed, Purpose.LABELED_VIEWS, step)
    labels = torch.from_numpy(known).long().to(device)
    labeled_views = _views(images and images.labeled, labeled, method.labeled_views, views, generator, device)
    labeled_positions = torch.from_numpy(_positions(split.labeled_rows, labeled)).to(device)
    if not method.unlabeled_views:
        batch = Batch(labeled_views, labels, labeled_rows=labeled_positions)
        return batch, torch.empty(0, dtype=torch.long, device=device)
    positions = unlabeled_positions(split, settings, step)
    rows = split.unlabeled_rows[positions]
    generator = torch_generator(settings.seed, Purpose.UNLABELED_VIEWS, step)
    unlabeled_views = _views(images and images.unlabeled, rows, method.unlabeled_views, views, generator, device)
    batch = Batch(labeled_views, labels, unlabeled_views, torch.from_numpy(positions).to(device), labeled_positions)
    return batch, torch.from_numpy(split.truth[rows]).long().to(device)


def _positions(pool: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The position of each row in a pool of rows in any order; -1 for a row that it does not have."""
    order = np.argsort(pool)
    found = order[np.searchsorted(pool, rows, sorter=order).clip(max=len(pool) - 1)]
    return np.where(pool[found] == rows, found, -1)


def whole_batch(batch: Batch) -> Batch:
    """A batch with the views of all processes."""
    labeled = tuple(gathered(view, len(batch.labels)) for view in batch.labeled)
    unlabeled = tuple(gathered(view, len(batch.rows)) for view in batch.unlabeled)
    return replace(batch, labeled=labeled, unlabeled=unlabeled)


@dataclass(frozen=True)
class Probe:
    """Labeled images under a learned policy, to measure how well the model still recognizes them."""

    policy: CTAugment
    draw: CTADraw
    images: Tensor  # (n, c, h, w) uint8, of this process's rows
    labels: Tensor  # (B,)


def make_probes(
    split: Split,
    method: Method,
    views: Views,
    settings: TrainSettings,
    step: int,
    device: torch.device,
    images: StepImages | None = None,
) -> list[Probe]:
    """The labeled images of the step again, for each view of the method whose policy is learned."""
    if isinstance(views, Bank):  # its views are fixed
        return []
    names = sorted({*method.labeled_views, *method.unlabeled_views})
    learned = [policy for policy in (views[name] for name in names) if isinstance(policy, CTAugment)]
    if not learned:
        return []
    rows, known = draw_labeled(split, method, settings, step)
    generator = torch_generator(settings.seed, Purpose.PROBES, step)
    own = _on_device((images or read_images(split, method, settings, False, step)).labeled, device)
    labels = torch.from_numpy(known).long().to(device)
    height, width = own.shape[2:]
    probes = []
    for policy in learned:
        draw = policy.draw_probe(len(rows), height, width, generator)
        probes.append(Probe(policy, draw, policy.apply_probe(own, _own_draw(draw)), labels))
    return probes


def _views(
    images: Tensor | None,
    rows: np.ndarray,
    names: tuple[str, ...],
    views: Views,
    generator: torch.Generator,
    device: torch.device,
) -> tuple[Tensor, ...]:
    if isinstance(views, Bank):
        drawn = [(name, views.draw(name, len(rows), generator)) for name in names]
        return tuple(views.take(name, own_rows(rows), own_rows(draw)).to(device).float() for name, draw in drawn)
    assert images is not None
    own = _on_device(images, device)
    height, width = own.shape[2:]
    draws = [views[name].draw(len(rows), height, width, generator) for name in names]
    return tuple(views[name].apply(own, _own_draw(draw)) for name, draw in zip(names, draws, strict=True))


def _on_device(images: Tensor, device: torch.device) -> Tensor:
    """The images on the device; from pinned memory, nothing waits for the copy."""
    return images.to(device, non_blocking=images.is_pinned())


def _own_draw(draw: Any) -> Any:
    """The part of a draw (a tensor, or a named tuple of draws) for this process's rows."""
    return own_rows(draw) if isinstance(draw, Tensor) else type(draw)(*map(_own_draw, draw))
