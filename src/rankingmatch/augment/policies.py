"""Policies: ways to make random views.

A policy first draws, on the CPU and for the whole batch, then applies the draws on the images' device. The two
halves are apart so that a batch divided over devices or processes is augmented exactly as one batch.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rankingmatch.augment.geometry import crop_and_flip
from rankingmatch.augment.operations import IDENTITY, NAMES, apply_operations

MID_GREY = 127


class Policy(Protocol):
    """A way to make a random view of each image of a batch."""

    def draw(self, count: int, height: int, width: int, generator: torch.Generator) -> Any:
        """The random part for `count` images: CPU tensors whose first dimension is `count`."""

    def apply(self, images: Tensor, draw: Any) -> Tensor:
        """The view of (n, c, h, w) uint8 images under these draws."""


class WeakDraw(NamedTuple):
    """Where each image is cropped and whether it is flipped."""

    shift: Tensor  # (n, 2) = (dy, dx)
    flipped: Tensor  # (n,)


@dataclass(frozen=True)
class Weak:
    """Horizontal flip, reflect padding, random crop."""

    flip: bool = True
    padding: int = 4

    def draw(self, count: int, height: int, width: int, generator: torch.Generator) -> WeakDraw:
        """A shift within ±padding and a coin for each image."""
        shift = torch.randint(-self.padding, self.padding + 1, (count, 2), generator=generator)
        flipped = torch.rand(count, generator=generator) < (0.5 if self.flip else 0.0)
        return WeakDraw(shift, flipped)

    def apply(self, images: Tensor, draw: WeakDraw) -> Tensor:
        """The weak view."""
        return crop_and_flip(images, draw.shift, draw.flipped)


class StrongDraw(NamedTuple):
    """A weak draw, the operations with their magnitudes, and the centre of the cutout."""

    weak: WeakDraw
    operation: Tensor  # (n, operations)
    magnitude: Tensor  # (n, operations) in [0, 1)
    centre: Tensor  # (n, 2) = (y, x)


@dataclass(frozen=True)
class RandAugment:
    """A weak view, then some of the fourteen operations at random magnitudes, then cutout."""

    weak: Weak = Weak()
    operations: int = 2
    probability: float = 0.5
    cutout: int = 16

    def draw(self, count: int, height: int, width: int, generator: torch.Generator) -> StrongDraw:
        """Operations with replacement, each applied with `probability`; magnitudes uniform in their range."""
        shape = (count, self.operations)
        weak = self.weak.draw(count, height, width, generator)
        operation = torch.randint(len(NAMES), shape, generator=generator)
        applied = torch.rand(shape, generator=generator) < self.probability
        magnitude = torch.rand(shape, generator=generator, dtype=torch.float64)
        y = torch.randint(height, (count,), generator=generator)
        x = torch.randint(width, (count,), generator=generator)
        return StrongDraw(weak, torch.where(applied, operation, IDENTITY), magnitude, torch.stack([y, x], 1))

    def apply(self, images: Tensor, draw: StrongDraw) -> Tensor:
        """The strong view."""
        images = self.weak.apply(images, draw.weak)
        for operation, magnitude in zip(draw.operation.unbind(1), draw.magnitude.unbind(1), strict=True):
            images = apply_operations(images, operation, magnitude)
        return cutout(images, draw.centre, self.cutout)


def cutout(images: Tensor, centre: Tensor, size: int | Tensor) -> Tensor:
    """Grey squares around (n, 2) centres (y, x), cut at the border; of one side `size`, or of (n,) sides."""
    side = torch.as_tensor(size).expand(len(images)).to(images.device)[:, None]
    start = centre.to(images.device) - side // 2
    rows = _between(images.shape[2], start[:, 0], side)
    columns = _between(images.shape[3], start[:, 1], side)
    square = rows[:, None, :, None] & columns[:, None, None, :]
    # All bits of a pixel at once, which is far faster than asking for each pixel whether it is inside.
    return (images & ~square).bitwise_or_(square & MID_GREY)


def _between(length: int, start: Tensor, size: Tensor) -> Tensor:
    """(n, length) of 255 at the positions start … start + size - 1, else 0, for (n,) starts and (n, 1) sizes."""
    position = torch.arange(length, device=start.device) - start[:, None]
    return ((position >= 0) & (position < size)).byte() * 255


def augmented(policy: Policy, images: Tensor, generator: torch.Generator) -> Tensor:
    """A random view of each of (n, c, h, w) uint8 images, every image with its own draw."""
    count, _, height, width = images.shape
    return policy.apply(images, policy.draw(count, height, width, generator))
