"""Image operations over a batch, with one magnitude per image, and the table of the operations known by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rankingmatch.augment import geometry, pixels
from rankingmatch.core.errors import ConfigError, unknown_name

OperationKind = Literal["table", "affine", "filter"]
_KINDS: tuple[OperationKind, ...] = ("table", "affine", "filter")


@dataclass(frozen=True)
class Operation:
    """An image operation and the range of its magnitudes.

    Call it with uint8 images (n, c, h, w) and magnitudes (n,) on the CPU, one per image; it returns uint8 images of the
    same shape.

    Attributes
    ----------
    kind : {"table", "affine", "filter"}
        What `function` computes. "filter": images. "table": a lookup table for each channel. "affine": a matrix for
        each image. All tables of a batch are applied in one lookup and all matrices in one gather.
    function : callable
        "filter": ``function(images, magnitude)`` returns images (n, c, h, w). "table": ``function(images, magnitude)``
        returns uint8 tables (n, c, 256). "affine": ``function(magnitude, height, width)`` returns float64 matrices
        (n, 6) as in PIL's ``Image.transform``.
    low, high : float
        The range of the magnitude.
    bins : int
        The number of bins into which CTAugment divides the range.
    """

    kind: OperationKind
    function: Callable[..., Tensor]
    low: float = 0.0
    high: float = 0.0
    bins: int = 17

    def magnitude(self, unit: Tensor) -> Tensor:
        """Map numbers in [0, 1) to the range of the magnitude."""
        return self.low + unit * (self.high - self.low)

    def __call__(self, images: Tensor, magnitude: Tensor) -> Tensor:
        """Apply the operation to every image."""
        if self.kind == "affine":
            return geometry.affine(images, self.function(magnitude, *images.shape[2:]))
        result = self.function(images, magnitude)
        return pixels.look_up(images, result) if self.kind == "table" else result


def identity(images: Tensor, _: Tensor) -> Tensor:
    """Return the images unchanged."""
    return images


OPERATIONS: dict[str, Operation] = {
    "identity": Operation("filter", identity, bins=1),
    "autocontrast": Operation("table", pixels.autocontrast),
    "brightness": Operation("table", pixels.brightness, 0.05, 0.95),
    "color": Operation("filter", pixels.color, 0.05, 0.95),
    "contrast": Operation("table", pixels.contrast, 0.05, 0.95),
    "equalize": Operation("table", pixels.equalize),
    "posterize": Operation("table", pixels.posterize, 4, 9),  # the fraction is dropped: 4…8 bits, equally often
    "rotate": Operation("affine", geometry.rotation, -30, 30),
    "sharpness": Operation("filter", pixels.sharpness, 0.05, 0.95),
    "shear-x": Operation("affine", geometry.shear_x, -0.3, 0.3),
    "shear-y": Operation("affine", geometry.shear_y, -0.3, 0.3),
    "solarize": Operation("table", pixels.solarize, 0, 1),
    "translate-x": Operation("affine", geometry.translation_x, -0.3, 0.3),
    "translate-y": Operation("affine", geometry.translation_y, -0.3, 0.3),
}

# The 14 operations of the paper. A draw is a position in this tuple, so operations registered later do not change it.
RANDAUGMENT_NAMES = tuple(OPERATIONS)


def register_operation(name: str, operation: Operation) -> None:
    """Add an `operation` to `OPERATIONS` for policies whose `operation_names` include its `name`, which must be new."""
    if name in OPERATIONS:
        raise ConfigError(f"there is already an operation '{name}'; choose another name")
    OPERATIONS[name] = operation


def find_operations(names: Sequence[str], table: Mapping[str, Operation]) -> list[Operation]:
    """Look operations up by name; ConfigError if a name is unknown."""
    for name in names:
        if name not in table:
            raise unknown_name("operation", name, table)
    return [table[name] for name in names]


def apply_operations(images: Tensor, index: Tensor, unit: Tensor, operations: Sequence[Operation]) -> Tensor:
    """Apply to each image its own operation at its own magnitude.

    `index` (n,) has the positions of the images' operations in `operations`; `unit` (n,), in [0, 1), says where the
    magnitude lies in the operation's range.

    Images are sorted by operation and back again, so that each operation runs once, on the images that drew it: all
    table operations share one lookup and all affine ones share one gather.
    """
    by_kind = sorted(range(len(operations)), key=lambda position: _KINDS.index(operations[position].kind))
    chosen = [operations[position] for position in by_kind]
    rank = torch.tensor(by_kind).argsort()[index]
    order, counts = rank.argsort(), rank.bincount(minlength=len(chosen)).tolist()
    sorted_images = images.index_select(0, order.to(images.device))
    computed: dict[str, list[Tensor]] = {kind: [] for kind in _KINDS}
    for operation, part, part_unit in zip(chosen, sorted_images.split(counts), unit[order].split(counts), strict=True):
        if len(part):
            magnitude = operation.magnitude(part_unit)
            arguments = (magnitude, *images.shape[2:]) if operation.kind == "affine" else (part, magnitude)
            computed[operation.kind].append(operation.function(*arguments))
    results, done = [], 0
    for kind, apply in (("table", pixels.look_up), ("affine", geometry.affine)):
        if computed[kind]:
            values = torch.cat(computed[kind])
            results.append(apply(sorted_images[done : done + len(values)], values))
            done += len(values)
    back = order.argsort().to(images.device)
    return torch.cat([*results, *computed["filter"]]).index_select(0, back) if len(images) else images
