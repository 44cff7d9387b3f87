"""MixUp (Zhang et al., 2018): averages of two rows, images and targets alike, as MixMatch and its successors use it."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.methods.passes import interleaved_logits
from rankingmatch.methods.protocol import Batch


class MixDraw(NamedTuple):
    """For each of n rows, on the CPU: the weight in [1/2, 1] that it keeps, and the index of its partner."""

    share: Tensor
    partner: Tensor


def draw_mixup(count: int, alpha: float, generator: torch.Generator) -> MixDraw:
    """Draw λ = max(λ', 1 - λ') with λ' ~ Beta(α, α) for every row, and a random permutation of the rows."""
    # torch's Beta distribution takes no generator; NumPy's does, and gets its seed from torch's.
    seed = int(torch.randint(2**62, (), generator=generator))
    share = torch.from_numpy(np.random.default_rng(seed).beta(alpha, alpha, count))
    return MixDraw(torch.maximum(share, 1 - share), torch.randperm(count, generator=generator))


def mixup(rows: Tensor, draw: MixDraw) -> Tensor:
    """Mix rows (n, ...) of any dtype with their partners: λ_i x_i + (1 - λ_i) x_partner(i), in floating point."""
    rows = rows if rows.is_floating_point() else rows.float()
    share = draw.share.to(rows.dtype).to(rows.device).view(-1, *[1] * (rows.ndim - 1))
    return share * rows + (1 - share) * rows[draw.partner.to(rows.device)]


class MixedBatch(NamedTuple):
    """Logits and mixed targets: of the labeled rows (B, classes), and of the unlabeled ones, view by view."""

    labeled_logits: Tensor
    labeled_targets: Tensor
    logits: Tensor
    targets: Tensor


def mixed_batch(model: nn.Module, batch: Batch, guess: Tensor, alpha: float, generator: torch.Generator) -> MixedBatch:
    """Mix all rows of a batch with one another and pass them through the network.

    The batch has one labeled view and any number of unlabeled views; the guess (μB, classes) is the target of each.
    """
    (labeled,), views = batch.labeled, len(batch.unlabeled)
    known = F.one_hot(batch.labels, guess.shape[1]).to(guess.dtype)
    images = torch.cat([labeled, *batch.unlabeled])
    draw = draw_mixup(len(images), alpha, generator)
    targets = mixup(torch.cat([known, *[guess] * views]), draw)
    logits = interleaved_logits(model, mixup(images, draw), views + 1)
    count = len(labeled)
    return MixedBatch(logits[:count], targets[:count], logits[count:], targets[count:])
