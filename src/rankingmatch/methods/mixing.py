"""MixUp (Zhang et al., 2018): averages of two rows, images and targets alike, as MixMatch and its successors use it."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.methods.passes import interleaved_logits
from rankingmatch.methods.protocol import Batch


def draw_mixup(count: int, alpha: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw λ = max(λ', 1 - λ') with λ' ~ Beta(α, α) for every row, and a random permutation of the rows (both (n,))."""
    # torch's Beta distribution takes no generator; NumPy's does, and gets its seed from torch's.
    seed = int(torch.randint(2**62, (), generator=generator))
    share = torch.from_numpy(np.random.default_rng(seed).beta(alpha, alpha, count))
    return torch.maximum(share, 1 - share), torch.randperm(count, generator=generator)


def mixup(rows: Tensor, share: Tensor, partner: Tensor) -> Tensor:
    """Mix rows (n, ...) of any dtype with their partners: λ_i x_i + (1 - λ_i) x_partner(i), in floating point."""
    rows = rows if rows.is_floating_point() else rows.float()
    share = share.to(rows.dtype).to(rows.device).view(-1, *[1] * (rows.ndim - 1))
    return share * rows + (1 - share) * rows[partner.to(rows.device)]


def mixed_batch(
    model: nn.Module, batch: Batch, guess: Tensor, alpha: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mix all rows of a batch with one another and pass them through the network.

    The batch has one labeled view and any number of unlabeled views; the guess (μB, classes) is the target of each.
    Returns logits and mixed targets of the labeled rows (B, classes), and those of the unlabeled ones, view by view.
    """
    (labeled,), views = batch.labeled, len(batch.unlabeled)
    known = F.one_hot(batch.labels, guess.shape[1]).to(guess.dtype)
    images = torch.cat([labeled, *batch.unlabeled])
    draw = draw_mixup(len(images), alpha, generator)
    targets = mixup(torch.cat([known, *[guess] * views]), *draw)
    logits = interleaved_logits(model, mixup(images, *draw), views + 1)
    count = len(labeled)
    return logits[:count], targets[:count], logits[count:], targets[count:]
