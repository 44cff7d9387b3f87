"""Batched augmentation of uint8 tensors: any channel count, any device, every image with its own draw.

    from rankingmatch.augment import RandAugment, Weak, augmented

    views = augmented(RandAugment(cutout=8), images, torch.Generator().manual_seed(0))

`images` is (n, c, h, w) uint8 and so is what comes back. Single operations are in `OPERATIONS`:

    rotated = OPERATIONS["rotate"](images, torch.tensor([10.0, -5.0]))  # degrees, one per image

PIL is the reference: point operations, filters, rotation and shear equal its results bit for bit.
"""

from rankingmatch.augment.ctaugment import CTADraw, CTAugment
from rankingmatch.augment.geometry import quarter_turns
from rankingmatch.augment.operations import OPERATIONS, Operation, apply_operations
from rankingmatch.augment.policies import (
    Policy,
    RandAugment,
    Weak,
    augmented,
    cutout,
)
from rankingmatch.augment.views import ViewSettings, view_policies

__all__ = [
    "OPERATIONS",
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
    "view_policies",
]
