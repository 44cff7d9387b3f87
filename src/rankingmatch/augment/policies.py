"""Policies: how random views of images are made; and the settings of the weak, the medium and the strong view.

A policy first draws random numbers, on the CPU and for the whole batch, then applies them on the images' device. The
two steps are separate so that a batch divided over processes is augmented exactly as on a single process.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from rankingmatch.augment.geometry import crop_and_flip
from rankingmatch.augment.operations import OPERATIONS, RANDAUGMENT_NAMES, apply_operations, find_operations
from rankingmatch.core.options import option

MID_GRAY = 127


class Policy(Protocol):
    """A way to make a random view of each image of a batch."""

    def draw(self, count: int, height: int, width: int, generator: torch.Generator) -> Any:
        """Draw the random numbers for `count` images of this size: a CPU tensor or NamedTuple with `count` rows."""

    def apply(self, images: Tensor, draw: Any) -> Tensor:
        """Compute the view of uint8 images (n, c, h, w) from what `draw` returned, or from its rows for these."""


class WeakDraw(NamedTuple):
    """Where each image is cropped and whether it is flipped."""

    shift: Tensor  # (n, 2) = (dy, dx)
    flipped: Tensor  # (n,) of bool


@dataclass(frozen=True)
class Weak:
    """The weak view: horizontal flip, reflect padding, random crop.

    Attributes
    ----------
    flip, padding : bool, int
        Whether to flip half of the images; the largest shift, in pixels.
    """

    flip: bool = True
    padding: int = 4

    def draw(self, count: int, height: int, width: int, generator: torch.Generator) -> WeakDraw:
        """Draw a shift within ±padding and whether to flip, for each image."""
        shift = torch.randint(-self.padding, self.padding + 1, (count, 2), generator=generator)
        flipped = torch.rand(count, generator=generator) < (0.5 if self.flip else 0.0)
        return WeakDraw(shift, flipped)

    def apply(self, images: Tensor, draw: WeakDraw) -> Tensor:
        """Compute the weak view of uint8 images (n, c, h, w)."""
        return crop_and_flip(images, draw.shift, draw.flipped)


class StrongDraw(NamedTuple):
    """A weak draw, the operations with their magnitudes, and the center of the cutout."""

    weak: WeakDraw
    operation: Tensor  # (n, operations): positions in the names of the operations, their number for none
    magnitude: Tensor  # (n, operations) in [0, 1)
    center: Tensor  # (n, 2) = (y, x)


@dataclass(frozen=True)
class RandAugment:
    """The strong view: a weak view, then randomly chosen operations at random magnitudes, then cutout.

    Attributes
    ----------
    weak : Weak
        The weak view that comes first.
    operations, cutout : int
        The number of operations drawn for each image, with replacement; the side of the gray square, in pixels.
    probability : float
        The probability that a drawn operation is applied.
    operation_names : tuple of str
        The operations to draw from: names in `OPERATIONS`. By default the paper's 14.
    """

    weak: Weak = Weak()
    operations: int = 2
    probability: float = 0.5
    cutout: int = 16
    operation_names: tuple[str, ...] = RANDAUGMENT_NAMES

    def __post_init__(self) -> None:
        find_operations(self.operation_names, OPERATIONS)

    def draw(self, count: int, height: int, width: int, generator: torch.Generator) -> StrongDraw:
        """Draw operations with replacement, each applied with `probability`, and uniform magnitudes."""
        shape = (count, self.operations)
        weak = self.weak.draw(count, height, width, generator)
        operation = torch.randint(len(self.operation_names), shape, generator=generator)
        applied = torch.rand(shape, generator=generator) < self.probability
        magnitude = torch.rand(shape, generator=generator, dtype=torch.float64)
        y = torch.randint(height, (count,), generator=generator)
        x = torch.randint(width, (count,), generator=generator)
        operation = torch.where(applied, operation, len(self.operation_names))  # the identity, if it is not applied
        return StrongDraw(weak, operation, magnitude, torch.stack([y, x], 1))

    def apply(self, images: Tensor, draw: StrongDraw) -> Tensor:
        """Compute the strong view of uint8 images (n, c, h, w)."""
        images = self.weak.apply(images, draw.weak)
        operations = find_operations((*self.operation_names, "identity"), OPERATIONS)
        for index, magnitude in zip(draw.operation.unbind(1), draw.magnitude.unbind(1), strict=True):
            images = apply_operations(images, index, magnitude, operations)
        return cutout(images, draw.center, self.cutout)


def cutout(images: Tensor, center: Tensor, size: int | Tensor) -> Tensor:
    """Paint a gray square over each image, clipped at the border.

    `center` (n, 2) has the centers (y, x) of the squares, and `size`, one number or (n,), their sides in pixels.
    """
    side = torch.as_tensor(size).expand(len(images)).to(images.device)[:, None]
    start = center.to(images.device) - side // 2
    rows = _between(images.shape[2], start[:, 0], side)
    columns = _between(images.shape[3], start[:, 1], side)
    square = rows[:, None, :, None] & columns[:, None, None, :]
    # Bitwise operations on bytes are much faster than a torch.where over the pixels.
    return (images & ~square).bitwise_or_(square & MID_GRAY)


def _between(length: int, start: Tensor, size: Tensor) -> Tensor:
    """(n, length) of 255 at the positions start … start + size - 1, else 0, for starts (n,) and sizes (n, 1)."""
    position = torch.arange(length, device=start.device) - start[:, None]
    return ((position >= 0) & (position < size)).byte() * 255


def augmented(policy: Policy, images: Tensor, generator: torch.Generator) -> Tensor:
    """Make a random view of each image by a `policy`: `Weak`, `RandAugment`, `CTAugment` or your own."""
    count, _, height, width = images.shape
    return policy.apply(images, policy.draw(count, height, width, generator))


@dataclass(frozen=True)
class ViewSettings:
    """How the weak and the strong view of an image are made."""

    flip: bool = option(True, "Weak and strong views: flip half of the images horizontally.")
    padding: int = option(
        4,
        "Weak and strong views: shift by up to this many pixels, with reflect padding.",
        interval="[0, 1024]",
    )
    strong: Literal["randaugment", "ctaugment"] = option(
        "randaugment",
        "Strong view: RandAugment draws magnitudes at random; CTAugment learns at which ones the model still "
        "recognizes labeled images.",
    )
    bank_views: int = option(
        6,
        "With {tune} top or head: number of weak and of strong views of each image that are computed in advance.",
        interval="[1, 64]",
    )
    operations: int = option(2, "Strong view: number of operations drawn for each image.", interval="[0, 1024]")
    operation_probability: float = option(
        0.5, "RandAugment: probability that a drawn operation is applied.", interval="[0, 1]"
    )
    cutout: int = option(16, "Strong view: side of the gray square (cutout), in pixels.", interval="[0, 1024]")


def view_policies(settings: ViewSettings) -> dict[str, Policy]:
    """Make the policies named "weak", "medium" and "strong" of `settings`.

    A policy that learns is in its initial state. The medium view is RandAugment with one operation.
    """
    from rankingmatch.augment.ctaugment import CTAugment  # which imports this module

    weak = Weak(settings.flip, settings.padding)
    medium = RandAugment(weak, 1, settings.operation_probability, settings.cutout)
    strong: Policy = RandAugment(weak, settings.operations, settings.operation_probability, settings.cutout)
    if settings.strong == "ctaugment":
        strong = CTAugment(weak, settings.operations, settings.cutout)
    return {"weak": weak, "medium": medium, "strong": strong}
