"""The fourteen operations of RandAugment, each over a batch with one magnitude per image."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rankingmatch.augment import filters, geometry, tables


@dataclass(frozen=True)
class Operation:
    """A named image operation with its range of magnitudes.

    Call it with (n, c, h, w) uint8 images and (n,) magnitudes on the CPU; every image has its own.
    """

    kind: Literal["table", "affine", "filter"]
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
        return tables.look_up(images, result) if self.kind == "table" else result


def identity(images: Tensor, _: Tensor) -> Tensor:
    """The images as they are."""
    return images


OPERATIONS: dict[str, Operation] = {
    "identity": Operation("filter", identity),
    "autocontrast": Operation("table", tables.autocontrast),
    "brightness": Operation("table", tables.brightness, 0.05, 0.95),
    "color": Operation("filter", filters.color, 0.05, 0.95),
    "contrast": Operation("table", tables.contrast, 0.05, 0.95),
    "equalize": Operation("table", tables.equalize),
    "posterize": Operation("table", tables.posterize, 4, 9),  # the fraction is dropped: 4…8 bits alike
    "rotate": Operation("affine", geometry.rotation, -30, 30),
    "sharpness": Operation("filter", filters.sharpness, 0.05, 0.95),
    "shear-x": Operation("affine", geometry.shear_x, -0.3, 0.3),
    "shear-y": Operation("affine", geometry.shear_y, -0.3, 0.3),
    "solarize": Operation("table", tables.solarize, 0, 1),
    "translate-x": Operation("affine", geometry.translation_x, -0.3, 0.3),
    "translate-y": Operation("affine", geometry.translation_y, -0.3, 0.3),
}
NAMES = tuple(OPERATIONS)
IDENTITY = NAMES.index("identity")


def apply_operations(
    images: Tensor, operation: Tensor, unit: Tensor, operations: Mapping[str, Operation] = OPERATIONS
) -> Tensor:
    """Apply to image i the operation numbered `operation[i]` (n,) at the magnitude `unit[i]` (n,) in [0, 1).

    Both are CPU tensors; the numbers are places in the table of operations. Rows are grouped, so that no operation
    works on an image that did not draw it: all point operations share one look-up and all geometric ones share one
    gather.
    """
    groups = {number: (operation == number).nonzero().squeeze(1) for number in operation.unique().tolist()}
    table = list(operations.values())
    result = images.clone()
    looked_up: list[tuple[Tensor, Tensor]] = []
    moved: list[tuple[Tensor, Tensor]] = []
    for number, rows in groups.items():
        chosen = table[number]
        magnitude = chosen.magnitude(unit[rows])
        if chosen.kind == "table":
            part = images[rows.to(images.device)]
            looked_up.append((rows, chosen.function(part, magnitude)))
        elif chosen.kind == "affine":
            moved.append((rows, chosen.function(magnitude, *images.shape[2:])))
        elif chosen.function is not identity:
            place = rows.to(images.device)
            result[place] = chosen(images[place], magnitude)
    if looked_up:
        rows = torch.cat([rows for rows, _ in looked_up]).to(images.device)
        result[rows] = tables.look_up(images[rows], torch.cat([table for _, table in looked_up]))
    if moved:
        rows = torch.cat([rows for rows, _ in moved]).to(images.device)
        result[rows] = geometry.affine(images[rows], torch.cat([matrix for _, matrix in moved]))
    return result
