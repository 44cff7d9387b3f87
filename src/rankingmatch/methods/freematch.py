"""FreeMatch (Wang et al., 2023): FixMatch with thresholds that follow the model's confidence, and a fairness loss."""

import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option
from rankingmatch.methods.passes import ViewOutputs, fixmatch_losses
from rankingmatch.methods.protocol import Batch, Context, Losses, Task, register_method, shared
from rankingmatch.methods.rebalancing import Rebalanced
from rankingmatch.methods.targets import (
    decay_at_length,
    histogram,
    pseudo_label,
    update_average,
)


@register_method("freematch", dataset_presets={"svhn": {"lowest_threshold": 0.9, "highest_threshold": 0.95}})
class FreeMatch(Rebalanced):
    """FixMatch's losses with self-adaptive thresholds, plus self-adaptive fairness."""

    reference = "Wang 2023"
    good_for = "very few labels; no threshold to choose"
    row = ("weak, strong", "adaptive threshold per class", "fairness loss")
    unlabeled_weight: float = shared("unlabeled_weight")
    fairness_weight: float = option(0.01, "w_f: weight of the fairness loss.", interval="[0, inf)")
    lowest_threshold: float = option(0.0, "Lower bound of the global threshold τ.", interval="[0, 1]")
    highest_threshold: float = option(1.0, "Upper bound of the global threshold τ.", interval="[0, 1]")
    statistics_decay: float | None = shared("statistics_decay")

    def prepare(self, task: Task) -> None:
        """Create moving averages over weak views, initially 1/C: τ of max(q), p̃ of q, h̃ of the histogram of q̂."""
        if self.lowest_threshold > self.highest_threshold:
            raise ConfigError(
                f"{setting('lowest_threshold')} is {self.lowest_threshold}, above {setting('highest_threshold')}, "
                f"which is {self.highest_threshold}; lower it"
            )
        super().prepare(task)
        self.confidence: Tensor = nn.Buffer(torch.tensor(1 / task.classes))
        self.probability: Tensor = nn.Buffer(torch.full((task.classes,), 1 / task.classes))
        self.frequency: Tensor = nn.Buffer(torch.full((task.classes,), 1 / task.classes))

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(max(q) ≥ τ(q̂)) H(q̂, strong view) + w_f L_f."""
        probabilities = outputs.weak.logits.softmax(1)
        (confidence, label), (count, classes) = probabilities.max(1), probabilities.shape
        decay = decay_at_length(self.statistics_decay, context.steps)
        update_average(self.confidence, confidence.mean(), decay)
        self.confidence.clamp_(self.lowest_threshold, self.highest_threshold)
        update_average(self.probability, probabilities.mean(0), decay)
        update_average(self.frequency, histogram(label, classes) / count, decay)
        # τ(c) = p̃(c) / max p̃ · τ, including this batch.
        thresholds = self.probability / self.probability.max() * self.confidence
        pseudo = pseudo_label(outputs.weak.logits, thresholds)
        losses = fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)
        fairness = fairness_loss(outputs.strong.logits, pseudo.confident, self.probability, self.frequency)
        return Losses(losses.total + self.fairness_weight * fairness, {**losses.parts, "fairness": fairness}, pseudo)


def fairness_loss(strong_logits: Tensor, confident: Tensor, probability: Tensor, frequency: Tensor) -> Tensor:
    """L_f = Σ_c a_c ln b_c, with a = SumNorm(p̃ / h̃) and b = SumNorm(p̄ / h̄); 0 if no row is confident.

    p̄ is the mean prediction for the confident strong views and h̄ the histogram of their argmax. A class that is never
    predicted for them has no ratio p̄ / h̄; its term is left out.
    """
    predictions = strong_logits.softmax(1)
    mean = (predictions * confident[:, None]).sum(0)
    count = histogram(predictions.argmax(1), predictions.shape[1], confident)
    present = count > 0
    # p̄ and h̄ would be divided by the same number of rows, which cancels in SumNorm.
    ratio = torch.where(present, mean, 0) / count.clamp(min=1)
    # The total is 0 only if no class is present.
    share = ratio / torch.where(present.any(), ratio.sum(), 1)
    # h̃ of a class that is never predicted goes to 0: keep its ratio finite.
    target = probability / frequency.clamp(min=1e-12)
    return (target / target.sum() * torch.where(present, share, 1).log()).sum()
