"""Distribution alignment (Berthelot et al., 2020): pseudo-labels that are distributed as the labels are."""

import torch
from torch import Tensor, nn

from rankingmatch.methods.passes import ViewOutputs
from rankingmatch.methods.protocol import Batch, Context, Task
from rankingmatch.methods.rebalancing.remedy import Remedy, label_distribution, safe_log
from rankingmatch.methods.targets import align_distribution

__all__ = ["DistributionAlignment"]

AVERAGED_BATCHES = 128


class DistributionAlignment(Remedy):
    """q ← Normalize(q · π / q̄), with the mean prediction q̄ over the 128 batches before this one."""

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        self.wanted: Tensor = nn.Buffer(label_distribution(task), persistent=False)
        self.predictions: Tensor = nn.Buffer(torch.full((AVERAGED_BATCHES, task.classes), 1 / task.classes))

    @torch.no_grad()
    def aligned(self, probabilities: Tensor, step: int, exponent: float = 1.0) -> Tensor:
        """Align probabilities (n, classes) with π^t, normalized, for the exponent t; they count in later steps."""
        wanted = self.wanted**exponent
        aligned = align_distribution(probabilities, wanted / wanted.sum(), self.predictions.mean(0))
        self.predictions[step % AVERAGED_BATCHES] = probabilities.mean(0)
        return aligned

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Align the predictions for the weak views."""
        aligned = self.aligned(outputs.weak_logits.softmax(1), context.step)
        return outputs._replace(weak_logits=safe_log(aligned))
