"""Weak and strong views: pairs per second, compared with PIL image by image and with kornia's batched operations.

All start from (n, h, w, c) uint8 arrays and end with two (n, c, h, w) float batches in 0…1.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from measuring import CPU, Row, Work, in_turns, ratio
from peers import KorniaPipeline, photographs, pil_strong, pil_views, pil_weak
from rankingmatch.augment import RandAugment, augmented
from rankingmatch.networks import to_tensor

PAIRS = 448  # μB in the paper
POLICY = RandAugment()


def our_pair(images: np.ndarray, policy: RandAugment, generator: torch.Generator) -> list[Tensor]:
    """Weak and strong views."""
    tensor = to_tensor(images, CPU)
    return [augmented(view, tensor, generator).float().div_(255) for view in (policy.weak, policy)]


def photographs_of(count: int, side: int = 32) -> np.ndarray:
    """(count, side, side, 3) crops of real photographs: on noise, some operations would have a different cost."""
    crops = photographs(3, side).permute(0, 2, 3, 1).numpy()
    return np.ascontiguousarray(crops[np.arange(count) % len(crops)])


def works(images: np.ndarray) -> dict[str, Work]:
    """The three implementations."""
    weak, strong = partial(pil_weak, policy=POLICY.weak), partial(pil_strong, policy=POLICY)
    return {
        "ours": partial(our_pair, images, POLICY, torch.Generator().manual_seed(0)),
        "PIL": lambda: pil_views(images, weak, strong),
        "kornia": partial(KorniaPipeline(POLICY, *images.shape[1:3]).pair, images),
    }


def rows(rounds: int = 15) -> list[Row]:
    """The rows of the table."""
    times = in_turns(works(photographs_of(PAIRS)), rounds)
    speed = {name: f"{PAIRS / sorted(values)[rounds // 2]:,.0f} pairs/s" for name, values in times.items()}
    return [
        Row(
            f"weak+strong pairs per second, 32×32×3, against {peer}",
            target,
            ratio(times, name, "ours"),
            detail=f"{speed['ours']}, {speed[name]}",
        )
        for name, peer, target in (
            ("PIL", "a per-image PIL pipeline", 25),
            ("kornia", "kornia's batched operations", 2),
        )
    ]
