"""SoftMatch (Chen et al., 2023): every pseudo-label is used, with less weight the further below average it is."""

import torch
from torch import Tensor, nn

from rankingmatch.core.options import option
from rankingmatch.methods.passes import ViewOutputs, fixmatch_losses
from rankingmatch.methods.protocol import Batch, Context, Losses, PseudoLabels, Task, register_method, shared
from rankingmatch.methods.rebalancing import Rebalanced
from rankingmatch.methods.targets import (
    decay_at_length,
    update_average,
)


@register_method("softmatch")
class SoftMatch(Rebalanced):
    """FixMatch's losses, weighted by a truncated Gaussian of the confidence, with uniform alignment."""

    reference = "Chen 2023"
    good_for = "short runs and fine-tuning: no image is dropped"
    row = ("weak, strong", "weight, alignment", "no threshold")
    unlabeled_weight: float = shared("unlabeled_weight")
    sigmas: float = option(2.0, "n: the standard deviation of the Gaussian is σ / n.", interval="(0, inf)")
    uniform_alignment: bool = option(True, "Divide predictions by their average before taking confidences.")
    statistics_decay: float | None = shared("statistics_decay")

    def prepare(self, task: Task) -> None:
        """Create moving averages over weak views: mean μ and variance σ² of the confidence, and the prediction p̃.

        p̃ starts as the mean prediction for the first batch; until then it is 0.
        """
        super().prepare(task)
        self.mean: Tensor = nn.Buffer(torch.tensor(1 / task.classes))
        self.variance: Tensor = nn.Buffer(torch.tensor(1.0))
        self.probability: Tensor = nn.Buffer(torch.zeros(task.classes))

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ λ(c) H(q̂, strong view), where c is the confidence after alignment."""
        probabilities = outputs.weak.logits.softmax(1)
        count, mean, aligned = len(probabilities), probabilities.mean(0), probabilities
        decay = decay_at_length(self.statistics_decay, context.steps)
        self.probability.copy_(torch.where(self.probability.any(), self.probability, mean))
        update_average(self.probability, mean, decay)
        if self.uniform_alignment:
            # UA(q) = Normalize(q · (1/C) / p̃). The factor 1/C cancels. A class that is never predicted has p̃ near 0:
            # keep its ratio finite.
            ratio = probabilities / self.probability.clamp(min=1e-6)
            aligned = ratio / ratio.sum(1, keepdim=True)
        confidence = aligned.amax(1)
        update_average(self.mean, confidence.mean(), decay)
        # The unbiased variance; that of a single row is 0.
        update_average(self.variance, confidence.var(correction=0) * count / max(count - 1, 1), decay)
        # λ(c) = exp(-max(μ - c, 0)² / (2σ²/n²)): 1 at the mean and above.
        below = (self.mean - confidence).clamp(min=0)
        weights = (-below.square() / (2 * (self.variance / self.sigmas**2).clamp(min=1e-12))).exp()
        # All rows are used; those reported as confident have the full weight.
        pseudo = PseudoLabels(probabilities.argmax(1), confidence >= self.mean)
        return fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight, weights)
