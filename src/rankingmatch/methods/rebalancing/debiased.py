"""DebiasPL (Wang et al., 2022): pseudo-labels without the bias of the average prediction, and margins against it."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from rankingmatch.core.schedule import statistics_momentum
from rankingmatch.methods.passes import ViewOutputs
from rankingmatch.methods.protocol import Batch, Context, Task
from rankingmatch.methods.rebalancing.remedy import Remedy, safe_log
from rankingmatch.methods.targets import update_average

__all__ = ["DebiasedPseudoLabels"]


class DebiasedPseudoLabels(Remedy):
    """Pseudo-labels from weak logits - λ ln p̂; the unlabeled loss of strong logits + λ ln p̂.

    p̂ is a moving average of the mean prediction for weak views. Its decay is 0.999 for the 131,072 steps of a full run
    and less for a shorter one, as that of BatchNorm's statistics.
    """

    usual_strength: ClassVar[float | None] = 0.5

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        self.average: Tensor = nn.Buffer(torch.full((task.classes,), 1 / task.classes))

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Shift the weak logits by the average before this batch, the strong ones by the average with it."""
        debiased = outputs.weak_logits - self.strength * safe_log(self.average)
        mean = outputs.weak_logits.softmax(1).mean(0)
        update_average(self.average, mean, 1 - statistics_momentum(context.steps))
        return outputs._replace(weak_logits=debiased, strong_shift=self.strength * safe_log(self.average))
