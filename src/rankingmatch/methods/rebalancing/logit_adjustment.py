"""Logit adjustment (Menon et al., 2021): a labeled loss whose minimum does not favor large classes."""

from typing import ClassVar

from torch import Tensor, nn

from rankingmatch.methods.passes import ViewOutputs
from rankingmatch.methods.protocol import Batch, Context, Task
from rankingmatch.methods.rebalancing.remedy import Remedy, label_distribution

__all__ = ["LogitAdjustment"]


class LogitAdjustment(Remedy):
    """The labeled loss is the cross-entropy of the logits + τ ln π; predictions and pseudo-labels have no shift."""

    usual_strength: ClassVar[float | None] = 1.0

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        self.shift: Tensor = nn.Buffer(strength * label_distribution(task).log(), persistent=False)

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Shift the logits of the labeled loss."""
        return outputs._replace(labeled_shift=self.shift)
