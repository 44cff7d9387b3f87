"""Policies: how random views of images are made; and the settings of the weak, the medium and the strong view.

A policy first draws random numbers, on the CPU and for the whole batch, then applies them on the images' device. The
two steps are separate so that a batch divided over processes is augmented exactly as on a single process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from rankingmatch.augment import geometry, pixels
from rankingmatch.augment.operations import (
    OPERATIONS,
    RANDAUGMENT_NAMES,
    Operation,
    apply_operations,
    find_operations,
    identity,
)
from rankingmatch.core.errors import ConfigError
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
        return geometry.crop_and_flip(images, draw.shift, draw.flipped)


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


# --- CTAugment (Berthelot et al., 2020): magnitudes are learned during training ----------------------------------

# The range of every operation is divided into bins, and every bin has a rate: how well the model still recognizes
# labeled images that are augmented with it. Views use the bins with high rates; probes use all bins equally often, and
# their results update the rates.
DECAY = 0.99
THRESHOLD = 0.80
LARGEST_SQUARE = 0.5  # of the shorter side, for the operation "cutout"

# The ranges are those of the paper's appendix; enhancements have those of the authors' code, which also brightens.
CTAUGMENT_OPERATIONS: dict[str, Operation] = {
    "identity": Operation("filter", identity, bins=1),
    "autocontrast": Operation("table", partial(pixels.blended_table, pixels.autocontrast), 0, 1),
    "blur": Operation("filter", partial(pixels.blended, pixels.blur), 0, 1),
    "brightness": Operation("table", pixels.brightness, 0.1, 2),
    "color": Operation("filter", pixels.color, 0.1, 2),
    "contrast": Operation("table", pixels.contrast, 0.1, 2),
    "cutout": Operation("filter", identity),  # its squares also have a center: `CTAugment` paints them itself
    "equalize": Operation("table", partial(pixels.blended_table, pixels.equalize), 0, 1),
    "invert": Operation("table", partial(pixels.blended_table, pixels.invert), 0, 1),
    "posterize": Operation("table", pixels.posterize, 1, 9, bins=8),  # 1…8 bits
    "rescale": Operation("filter", geometry.rescale, 0.5, 1),
    "rotate": Operation("affine", geometry.rotation, -45, 45),
    "sharpness": Operation("filter", pixels.sharpness, 0.1, 2),
    "shear-x": Operation("affine", geometry.shear_x, -0.3, 0.3),
    "shear-y": Operation("affine", geometry.shear_y, -0.3, 0.3),
    "smooth": Operation("filter", partial(pixels.blended, pixels.smooth), 0, 1),
    "solarize": Operation("table", pixels.solarize, 0, 1),
    "translate-x": Operation("affine", geometry.translation_x, -0.3, 0.3),
    "translate-y": Operation("affine", geometry.translation_y, -0.3, 0.3),
}

# The 19 operations of the paper, in the order of the draws.
CTAUGMENT_NAMES = tuple(CTAUGMENT_OPERATIONS)


class CTADraw(NamedTuple):
    """The draw of `CTAugment` for n images.

    Attributes
    ----------
    weak : WeakDraw
        The draw of the weak view.
    operation, bin, magnitude : Tensor
        (n, operations): positions in the names of the operations, bins, and magnitudes in [0, 1): (bin + U) / bins.
    operation_center, center : Tensor
        Centers (y, x) of the squares of the operation "cutout" (n, operations, 2), and of the last ones (n, 2).
    """

    weak: WeakDraw
    operation: Tensor
    bin: Tensor
    magnitude: Tensor
    operation_center: Tensor
    center: Tensor


@dataclass(eq=False)
class CTAugment:
    """The strong view: a weak view, then operations at magnitudes from bins with high rates, then cutout.

    Attributes
    ----------
    weak : Weak
        The weak view that comes first.
    operations, cutout : int
        The number of operations drawn for each image, with replacement; the side of the last gray square, in pixels.
    rates : Tensor
        Rates (number of names, largest number of bins) in float64, on the CPU; 1 at first. Entries beyond an
        operation's own bins are not used.
    operation_names : tuple of str
        The operations to draw from: names in `CTAUGMENT_OPERATIONS` or `OPERATIONS`. By default the paper's 19.
    """

    weak: Weak = field(default_factory=Weak)
    operations: int = 2
    cutout: int = 16
    rates: Tensor = None  # type: ignore[assignment]  # made below, where the number of names is known
    operation_names: tuple[str, ...] = CTAUGMENT_NAMES

    def __post_init__(self) -> None:
        if len(set(self.operation_names)) < len(self.operation_names):
            raise ConfigError(f"an operation is named twice: {', '.join(self.operation_names)}")
        self._table = find_operations(self.operation_names, {**OPERATIONS, **CTAUGMENT_OPERATIONS})
        self._bins = torch.tensor([operation.bins for operation in self._table])
        self._own = torch.arange(int(self._bins.max())) < self._bins[:, None]  # (operations, most bins)
        if self.rates is None:
            self.rates = torch.ones(self._own.shape, dtype=torch.float64)

    def draw(self, count: int, height: int, width: int, generator: torch.Generator) -> CTADraw:
        """Draw operations uniformly, with replacement, and their bins by the bins' weights."""
        return self._draw(count, height, width, generator, bin_weights(self.rates, self._own))

    def draw_probe(self, count: int, height: int, width: int, generator: torch.Generator) -> CTADraw:
        """Draw operations uniformly, with replacement, and their bins uniformly."""
        return self._draw(count, height, width, generator, self._own.double())

    def _draw(self, count: int, height: int, width: int, generator: torch.Generator, weights: Tensor) -> CTADraw:
        shape = (count, self.operations)
        weak = self.weak.draw(count, height, width, generator)
        operation = torch.randint(len(self.operation_names), shape, generator=generator)
        chance = torch.rand(shape, generator=generator, dtype=torch.float64)
        within = torch.rand(shape, generator=generator, dtype=torch.float64)
        y = torch.randint(height, (count, self.operations + 1), generator=generator)
        x = torch.randint(width, (count, self.operations + 1), generator=generator)
        center = torch.stack([y, x], 2)
        # The first bin whose cumulative weight exceeds the chance; a bin of weight 0 is never chosen.
        cumulative = weights[operation].cumsum(2)
        number = (cumulative <= chance[..., None] * cumulative[..., -1:]).sum(2)
        magnitude = (number + within) / self._bins[operation]
        return CTADraw(weak, operation, number, magnitude, center[:, :-1], center[:, -1])

    def apply(self, images: Tensor, draw: CTADraw) -> Tensor:
        """Compute the strong view of uint8 images (n, c, h, w)."""
        return cutout(self.apply_probe(images, draw), draw.center, self.cutout)

    def apply_probe(self, images: Tensor, draw: CTADraw) -> Tensor:
        """Compute the strong view without the last cutout, which has no rates."""
        images = self.weak.apply(images, draw.weak)
        largest = LARGEST_SQUARE * min(images.shape[2:])
        names = self.operation_names
        square = names.index("cutout") if "cutout" in names else -1
        for k in range(self.operations):
            operation, magnitude = draw.operation[:, k], draw.magnitude[:, k]
            images = apply_operations(images, operation, magnitude, self._table)
            side = torch.where(operation == square, magnitude * largest, 0).long()
            images = cutout(images, draw.operation_center[:, k], side)
        return images

    def learn(self, draw: CTADraw, proximity: Tensor) -> None:
        """Update the rates of the bins that a probe used: rate ← 0.99 rate + 0.01 proximity, one use after the other.

        `proximity` (n,) says how well the model recognized each image, from 0 to 1.
        """
        # A model that has diverged recognizes nothing; its NaN must not reach the rates.
        known = proximity.double().nan_to_num(0.0)[:, None].expand_as(draw.bin)
        rates = self.rates.clone()
        table = rates.numpy()  # shares its memory; single entries are faster in NumPy
        uses = (values.flatten().tolist() for values in (draw.operation, draw.bin, known))
        for operation, number, value in zip(*uses, strict=True):
            table[operation, number] = DECAY * table[operation, number] + (1 - DECAY) * value
        self.rates = rates

    def state_dict(self) -> dict[str, Tensor]:
        """Return the rates (bins,) of each operation by its name, as copies."""
        rows = zip(self.operation_names, self.rates, self._bins.tolist(), strict=True)
        return {name: rates[:bins].clone() for name, rates, bins in rows}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the rates that `state_dict` returned; ValueError if an operation has another number of bins.

        Operations that the policy does not use are ignored; those that are missing start at 1.
        """
        rates = torch.ones_like(self.rates)
        for row, (name, bins) in enumerate(zip(self.operation_names, self._bins.tolist(), strict=True)):
            if name in state:
                if state[name].shape != (bins,):
                    raise ValueError(f"the rates of '{name}' have the shape {tuple(state[name].shape)}, not ({bins},)")
                rates[row, :bins] = state[name]
        self.rates = rates


def bin_weights(rates: Tensor, own: Tensor) -> Tensor:
    """Weights by which bins are drawn: rate + 0.01, divided by the operation's largest, 0 if below the threshold.

    `rates` is (operations, most bins), and `own` says which bins each operation has.
    """
    weights = torch.where(own, rates + 0.01, 0.0)
    weights = weights / weights.amax(1, keepdim=True)
    return torch.where(weights < THRESHOLD, 0.0, weights)


# --- settings ----------------------------------------------------------------------------------------------------


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
    weak = Weak(settings.flip, settings.padding)
    medium = RandAugment(weak, 1, settings.operation_probability, settings.cutout)
    strong: Policy = RandAugment(weak, settings.operations, settings.operation_probability, settings.cutout)
    if settings.strong == "ctaugment":
        strong = CTAugment(weak, settings.operations, settings.cutout)
    return {"weak": weak, "medium": medium, "strong": strong}
