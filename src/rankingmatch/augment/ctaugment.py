"""CTAugment (Berthelot et al., 2020): strong views whose magnitudes are learned while training goes on.

The range of every operation is divided into bins, and every bin has a rate: how well the model still knew labeled
images under it. Views use the bins with high rates only; probes use all bins alike, and their results move the rates.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from rankingmatch.augment import filters, geometry, lookup
from rankingmatch.augment.operations import Operation, apply_operations, identity
from rankingmatch.augment.policies import Weak, WeakDraw, cutout

BINS = 17
DECAY = 0.99
THRESHOLD = 0.80
LARGEST_SQUARE = 0.5  # of the shorter side, for the operation "cutout"

# The ranges are those of the paper's appendix.
CTA_OPERATIONS: dict[str, Operation] = {
    "identity": Operation("filter", identity),
    "autocontrast": Operation("table", lookup.autocontrast_by, 0, 1),
    "blur": Operation("filter", filters.blur_by, 0, 1),
    "brightness": Operation("table", lookup.brightness, 0, 1),
    "color": Operation("filter", filters.color, 0, 1),
    "contrast": Operation("table", lookup.contrast, 0, 1),
    "cutout": Operation("filter", identity),  # its squares have a place as well: `CTAugment` draws them itself
    "equalize": Operation("table", lookup.equalize_by, 0, 1),
    "invert": Operation("table", lookup.invert_by, 0, 1),
    "posterize": Operation("table", lookup.posterize, 1, 9),  # 8 bins, of 1…8 bits
    "rescale": Operation("filter", geometry.rescale, 0.5, 1),
    "rotate": Operation("affine", geometry.rotation, -45, 45),
    "sharpness": Operation("filter", filters.sharpness, 0, 1),
    "shear-x": Operation("affine", geometry.shear_x, -0.3, 0.3),
    "shear-y": Operation("affine", geometry.shear_y, -0.3, 0.3),
    "smooth": Operation("filter", filters.smooth_by, 0, 1),
    "solarize": Operation("table", lookup.solarize, 0, 1),
    "translate-x": Operation("affine", geometry.translation_x, -0.3, 0.3),
    "translate-y": Operation("affine", geometry.translation_y, -0.3, 0.3),
}
CTA_NAMES = tuple(CTA_OPERATIONS)
CUTOUT = CTA_NAMES.index("cutout")
BINS_OF = torch.tensor([{"identity": 1, "posterize": 8}.get(name, BINS) for name in CTA_NAMES])


class CTADraw(NamedTuple):
    """A weak draw, the operations with their bins and magnitudes, and where squares are cut out."""

    weak: WeakDraw
    operation: Tensor  # (n, operations)
    bin: Tensor  # (n, operations)
    magnitude: Tensor  # (n, operations) in [0, 1): (bin + U) / bins
    place: Tensor  # (n, operations, 2) = (y, x): centres of the squares that operations cut out
    centre: Tensor  # (n, 2) = (y, x): centre of the last square


@dataclass(eq=False)
class CTAugment:
    """A weak view, then some operations at magnitudes from bins with high rates, then cutout."""

    weak: Weak = field(default_factory=Weak)
    operations: int = 2
    cutout: int = 16
    # On the CPU, where draws are made; beyond an operation's own bins they mean nothing.
    rates: Tensor = field(default_factory=lambda: torch.ones(len(CTA_NAMES), BINS, dtype=torch.float64))

    def draw(self, count: int, height: int, width: int, generator: torch.Generator) -> CTADraw:
        """Operations alike, with replacement; their bins by their weights."""
        return self._draw(count, height, width, generator, bin_weights(self.rates))

    def draw_probe(self, count: int, height: int, width: int, generator: torch.Generator) -> CTADraw:
        """Operations alike, and all bins of an operation alike."""
        return self._draw(count, height, width, generator, _own_bins().double())

    def _draw(self, count: int, height: int, width: int, generator: torch.Generator, weights: Tensor) -> CTADraw:
        shape = (count, self.operations)
        weak = self.weak.draw(count, height, width, generator)
        operation = torch.randint(len(CTA_NAMES), shape, generator=generator)
        chance = torch.rand(shape, generator=generator, dtype=torch.float64)
        inside = torch.rand(shape, generator=generator, dtype=torch.float64)
        y = torch.randint(height, (count, self.operations + 1), generator=generator)
        x = torch.randint(width, (count, self.operations + 1), generator=generator)
        place = torch.stack([y, x], 2)
        # The first bin whose cumulated weight exceeds the chance: one with weight 0 never does.
        cumulated = weights[operation].cumsum(2)
        number = (cumulated <= chance[..., None] * cumulated[..., -1:]).sum(2)
        magnitude = (number + inside) / BINS_OF[operation]
        return CTADraw(weak, operation, number, magnitude, place[:, :-1], place[:, -1])

    def apply(self, images: Tensor, draw: CTADraw) -> Tensor:
        """The strong view."""
        return cutout(self.apply_probe(images, draw), draw.centre, self.cutout)

    def apply_probe(self, images: Tensor, draw: CTADraw) -> Tensor:
        """The strong view without the last cutout, which is not learned."""
        images = self.weak.apply(images, draw.weak)
        largest = LARGEST_SQUARE * min(images.shape[2:])
        for k in range(self.operations):
            operation, magnitude = draw.operation[:, k], draw.magnitude[:, k]
            images = apply_operations(images, operation, magnitude, CTA_OPERATIONS)
            side = torch.where(operation == CUTOUT, magnitude * largest, 0).long()
            images = cutout(images, draw.place[:, k], side)
        return images

    def learn(self, draw: CTADraw, proximity: Tensor) -> None:
        """Move the rates of the bins that a probe used towards its images' proximity (n,).

        rate ← 0.99 rate + 0.01 proximity, once per bin and probe: where several images, or both operations of one, used
        a bin, their mean counts. So the order of the images does not matter.
        """
        # A model that has diverged knows nothing, and must not take the rates with it.
        known = proximity.double().nan_to_num(0.0)[:, None].expand_as(draw.bin).flatten()
        used = (draw.operation.flatten(), draw.bin.flatten())
        total = torch.zeros_like(self.rates).index_put_(used, known, accumulate=True)
        count = torch.zeros_like(self.rates).index_put_(used, torch.ones_like(known), accumulate=True)
        moved = DECAY * self.rates + (1 - DECAY) * total / count.clamp(min=1)
        self.rates = torch.where(count > 0, moved, self.rates)


def bin_weights(rates: Tensor) -> Tensor:
    """(operations, bins): w = rate + 0.01, divided by the operation's largest, 0 below the threshold."""
    weights = torch.where(_own_bins(), rates + 0.01, 0.0)
    weights = weights / weights.amax(1, keepdim=True)
    return torch.where(weights < THRESHOLD, 0.0, weights)


def _own_bins() -> Tensor:
    """(operations, bins) mask of the bins that an operation has."""
    return torch.arange(BINS) < BINS_OF[:, None]
