"""MixUp (Zhang et al., 2018): rows that are averages of two rows, images and targets alike."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class MixDraw(NamedTuple):
    """With which row each row of a pool is mixed, and the share it keeps. On the CPU."""

    share: Tensor  # (n,) float64 in [1/2, 1]
    partner: Tensor  # (n,) a permutation


def draw_mixup(count: int, alpha: float, generator: torch.Generator) -> MixDraw:
    """λ = max(λ', 1 - λ') with λ' ~ Beta(α, α), one for every row, and a random permutation of the rows."""
    # torch's Beta takes no generator, NumPy's does: it gets its seed from torch's.
    seed = int(torch.randint(2**62, (), generator=generator))
    share = torch.from_numpy(np.random.default_rng(seed).beta(alpha, alpha, count))
    return MixDraw(torch.maximum(share, 1 - share), torch.randperm(count, generator=generator))


def mixup(rows: Tensor, draw: MixDraw) -> Tensor:
    """λ_i x_i + (1 - λ_i) x_partner(i). The rows come first in any shape; uint8 becomes float."""
    rows = rows if rows.is_floating_point() else rows.float()
    share = draw.share.to(rows.dtype).to(rows.device).view(-1, *[1] * (rows.ndim - 1))
    return share * rows + (1 - share) * rows[draw.partner.to(rows.device)]
