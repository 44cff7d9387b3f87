"""The fourteen operations of RandAugment, each over a batch with one magnitude per image."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rankingmatch.augment import filters, geometry, lookup

Kind = Literal["table", "affine", "filter"]
KINDS: tuple[Kind, ...] = ("table", "affine", "filter")


@dataclass(frozen=True)
class Operation:
    """A named image operation with its range of magnitudes.

    Call it with (n, c, h, w) uint8 images and (n,) magnitudes on the CPU; every image has its own.
    """

    kind: Kind
    function: Callable[..., Tensor]
    low: float = 0.0
    high: float = 0.0

    def magnitude(self, unit: Tensor) -> Tensor:
        """A draw from [0, 1) as a magnitude of this operation."""
        return self.low + unit * (self.high - self.low)

    def __call__(self, images: Tensor, magnitude: Tensor) -> Tensor:
        """The images under this operation."""
        if self.kind == "affine":
            return geometry.affine(images, self.function(magnitude, *images.shape[2:]))
        result = self.function(images, magnitude)
        return lookup.look_up(images, result) if self.kind == "table" else result


def identity(images: Tensor, _: Tensor) -> Tensor:
    """The images as they are."""
    return images


OPERATIONS: dict[str, Operation] = {
    "identity": Operation("filter", identity),
    "autocontrast": Operation("table", lookup.autocontrast),
    "brightness": Operation("table", lookup.brightness, 0.05, 0.95),
    "color": Operation("filter", filters.color, 0.05, 0.95),
    "contrast": Operation("table", lookup.contrast, 0.05, 0.95),
    "equalize": Operation("table", lookup.equalize),
    "posterize": Operation("table", lookup.posterize, 4, 9),  # the fraction is dropped: 4…8 bits alike
    "rotate": Operation("affine", geometry.rotation, -30, 30),
    "sharpness": Operation("filter", filters.sharpness, 0.05, 0.95),
    "shear-x": Operation("affine", geometry.shear_x, -0.3, 0.3),
    "shear-y": Operation("affine", geometry.shear_y, -0.3, 0.3),
    "solarize": Operation("table", lookup.solarize, 0, 1),
    "translate-x": Operation("affine", geometry.translation_x, -0.3, 0.3),
    "translate-y": Operation("affine", geometry.translation_y, -0.3, 0.3),
}
NAMES = tuple(OPERATIONS)
IDENTITY = NAMES.index("identity")


def apply_operations(
    images: Tensor, operation: Tensor, unit: Tensor, operations: Mapping[str, Operation] = OPERATIONS
) -> Tensor:
    """Apply to image i the operation numbered `operation[i]` (n,) at the magnitude `unit[i]` (n,) in [0, 1).

    Both are CPU tensors; the numbers are places in the table of operations. Images are put in the order of their
    operations and back again, so that an operation works on a stretch of neighbours and on no image that did not draw
    it: all point operations share one look-up and all geometric ones share one gather.
    """
    table = list(operations.values())
    places = sorted(range(len(table)), key=lambda place: KINDS.index(table[place].kind))
    chosen = [table[place] for place in places]
    rank = torch.tensor(places).argsort()[operation]
    order, counts = rank.argsort(), rank.bincount(minlength=len(chosen)).tolist()
    sorted_images = images.index_select(0, order.to(images.device))
    pieces: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
    for one, part, part_unit in zip(chosen, sorted_images.split(counts), unit[order].split(counts), strict=True):
        if len(part):
            magnitude = one.magnitude(part_unit)
            of_images = one.kind != "affine"
            made = one.function(part, magnitude) if of_images else one.function(magnitude, *images.shape[2:])
            pieces[one.kind].append(made)
    results, done = [], 0
    for kind, work in (("table", lookup.look_up), ("affine", geometry.affine)):
        if pieces[kind]:
            values = torch.cat(pieces[kind])
            results.append(work(sorted_images[done : done + len(values)], values))
            done += len(values)
    back = order.argsort().to(images.device)
    return torch.cat([*results, *pieces["filter"]]).index_select(0, back) if len(images) else images
