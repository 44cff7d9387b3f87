"""FreeMatch (Wang et al., 2023): FixMatch with thresholds that follow the model's confidence, and a fairness loss."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option
from rankingmatch.methods import shared_options
from rankingmatch.methods.fixmatch import fixmatch_losses
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task
from rankingmatch.methods.rebalancing import Rebalance, make_remedy
from rankingmatch.methods.targets import histogram, pseudo_label, update_average

__all__ = ["FreeMatch", "fairness_loss"]


@dataclass(eq=False)
class FreeMatch(Method):
    """FixMatch's losses with self-adaptive thresholds, plus self-adaptive fairness."""

    unlabeled_weight: float = shared_options.unlabeled_weight()
    fairness_weight: float = option(0.01, "w_f: weight of the fairness loss.", interval="[0, inf)")
    lowest_threshold: float = option(0.0, "Lower bound of the global threshold τ.", interval="[0, 1]")
    highest_threshold: float = option(1.0, "Upper bound of the global threshold τ.", interval="[0, 1]")
    statistics_decay: float | None = shared_options.statistics_decay()
    weak_pass: WeakPass = shared_options.weak_pass()
    rebalance: Rebalance = shared_options.rebalance()
    rebalance_strength: float | None = shared_options.rebalance_strength()

    def prepare(self, task: Task) -> None:
        """Create moving averages over weak views, initially 1/C: τ of max(q), p̃ of q, h̃ of the histogram of q̂."""
        if self.lowest_threshold > self.highest_threshold:
            raise ConfigError(
                f"{setting('lowest_threshold')} is {self.lowest_threshold}, above {setting('highest_threshold')}, "
                f"which is {self.highest_threshold}; lower it"
            )
        self.remedy = make_remedy(self.rebalance, self.rebalance_strength, task)
        self.confidence: Tensor = nn.Buffer(torch.tensor(1 / task.classes))
        self.probability: Tensor = nn.Buffer(torch.full((task.classes,), 1 / task.classes))
        self.frequency: Tensor = nn.Buffer(torch.full((task.classes,), 1 / task.classes))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(max(q) ≥ τ(q̂)) H(q̂, strong view) + w_f L_f."""
        outputs = self.remedy(view_outputs(model, batch, self.weak_pass), batch, context)
        decay = shared_options.decay_at_length(self.statistics_decay, context.steps)
        self._update_averages(outputs.weak_logits.softmax(1), decay)
        # τ(c) = p̃(c) / max p̃ · τ, including this batch.
        thresholds = self.probability / self.probability.max() * self.confidence
        pseudo = pseudo_label(outputs.weak_logits, thresholds)
        losses = fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)
        fairness = fairness_loss(outputs.strong.logits, pseudo.confident, self.probability, self.frequency)
        return Losses(losses.total + self.fairness_weight * fairness, {**losses.parts, "fairness": fairness}, pseudo)

    def _update_averages(self, probabilities: Tensor, decay: float) -> None:
        """Update the moving averages with the predictions for a batch of weak views."""
        confidence, label = probabilities.max(1)
        count, classes = probabilities.shape
        update_average(self.confidence, confidence.mean(), decay)
        self.confidence.clamp_(self.lowest_threshold, self.highest_threshold)
        update_average(self.probability, probabilities.mean(0), decay)
        update_average(self.frequency, histogram(label, classes) / count, decay)


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
    terms = target / target.sum() * torch.where(present, share, 1).log()
    return terms.sum()
