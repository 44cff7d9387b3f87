"""What CoMatch and SimMatch share: embeddings of features, and alignment with recent batches."""

import torch
from torch import Tensor, nn

from rankingmatch.core.devices import full_precision
from rankingmatch.losses import l2_normalized
from rankingmatch.methods.protocol import Task
from rankingmatch.methods.targets import align_distribution

__all__ = ["Projection", "aligned_with_recent"]


class Projection(nn.Module):
    """Features (n, width) → L2-normalized embeddings (n, dimensions), by two linear layers.

    It belongs to the method, not to the network: checkpoints contain it, an exported model does not. If the network
    returns logits only, it takes these.
    """

    def __init__(self, task: Task, dimensions: int) -> None:
        super().__init__()
        width = task.features or task.classes
        self.layers = nn.Sequential(nn.Linear(width, width), nn.LeakyReLU(0.1), nn.Linear(width, dimensions))

    def forward(self, features: Tensor) -> Tensor:
        """Compute the embeddings."""
        with full_precision(features.device):
            return l2_normalized(self.layers(features))


@torch.no_grad()
def aligned_with_recent(probabilities: Tensor, recent: Tensor, step: int) -> Tensor:
    """Normalize(q / p̃), where p̃ is the mean prediction for the last batches, including this one.

    `recent` has the mean predictions (batches, classes), initially 0; the row of this step is updated. Rows that are
    still 0 scale p̃, which cancels.
    """
    recent[step % len(recent)] = probabilities.mean(0)
    return align_distribution(probabilities, torch.ones_like(recent[0]), recent.mean(0))
