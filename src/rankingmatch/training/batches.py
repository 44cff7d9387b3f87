"""The batch of a step, from rows to views, and probes for learned augmentation: functions of (seed, step).

With several processes, each augments its own rows; `whole_batch` gathers them. On an accelerator, the images of the
next step are read while this one is computed.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankingmatch.augment import CTADraw, CTAugment, Policy
from rankingmatch.core.distributed import gathered, own_rows
from rankingmatch.core.randomness import Purpose, torch_generator
from rankingmatch.data import Split, indices_of_step, rows_of_step
from rankingmatch.data.bank import Bank
from rankingmatch.methods import Batch, Method
from rankingmatch.networks import to_tensor
from rankingmatch.training.settings import TrainSettings

Views = dict[str, Policy] | Bank
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
    rows, known = draw_labeled(split, method, settings, step)
    generator = torch_generator(settings.seed, Purpose.LABELED_VIEWS, step)
    labels = torch.from_numpy(known).long().to(device)
    labeled = _views(images and images.labeled, rows, method.labeled_views, views, generator, device)
    # The position of each row among the labeled ones, which are in any order; -1 for rows that the method has labeled.
    order = np.argsort(split.labeled_rows)
    found = order[np.searchsorted(split.labeled_rows, rows, sorter=order).clip(max=len(order) - 1)]
    found = np.where(split.labeled_rows[found] == rows, found, -1)
    batch = Batch(labeled, labels, labeled_rows=torch.from_numpy(found).to(device))
    if not method.unlabeled_views:
        return batch, torch.empty(0, dtype=torch.long, device=device)
    positions = unlabeled_positions(split, settings, step)
    rows = split.unlabeled_rows[positions]
    generator = torch_generator(settings.seed, Purpose.UNLABELED_VIEWS, step)
    unlabeled = _views(images and images.unlabeled, rows, method.unlabeled_views, views, generator, device)
    batch = replace(batch, unlabeled=unlabeled, rows=torch.from_numpy(positions).to(device))
    return batch, torch.from_numpy(split.truth[rows]).long().to(device)


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
