"""Batched augmentation of uint8 images: any number of channels, any device, a random draw for each image.

    from rankingmatch.augment import RandAugment, Weak, augmented

    views = augmented(RandAugment(cutout=8), images, torch.Generator().manual_seed(0))

`views` are like `images`. The operations are in `OPERATIONS` by name:

    rotated = OPERATIONS["rotate"](images, torch.tensor([10.0, -5.0]))  # degrees, one per image

An operation of your own is added by `register_operation`; the default policies then draw the same as before, and
``RandAugment(operation_names=(*RANDAUGMENT_NAMES, "my-operation"))`` uses it.

The functions share these parameters: `images`, uint8 (n, c, h, w) on any device, and `generator`, on the CPU, as is all
that is drawn for an image.

The reference is PIL: point operations, filters, rotation and shear equal its results bit for bit.
"""

from rankingmatch.augment.geometry import quarter_turns
from rankingmatch.augment.operations import (
    OPERATIONS,
    RANDAUGMENT_NAMES,
    Operation,
    apply_operations,
    register_operation,
)
from rankingmatch.augment.policies import (
    CTAUGMENT_NAMES,
    CTAUGMENT_OPERATIONS,
    CTADraw,
    CTAugment,
    Policy,
    RandAugment,
    ViewSettings,
    Weak,
    augmented,
    cutout,
    view_policies,
)

__all__ = [
    "CTAUGMENT_NAMES",
    "CTAUGMENT_OPERATIONS",
    "OPERATIONS",
    "RANDAUGMENT_NAMES",
    "CTADraw",
    "CTAugment",
    "Operation",
    "Policy",
    "RandAugment",
    "ViewSettings",
    "Weak",
    "apply_operations",
    "augmented",
    "cutout",
    "quarter_turns",
    "register_operation",
    "view_policies",
]


def __dir__() -> list[str]:
    return __all__
