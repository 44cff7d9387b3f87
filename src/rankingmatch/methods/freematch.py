"""FreeMatch (Wang et al., 2023): FixMatch with thresholds that follow the model's confidence, and a fairness loss."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.options import option
from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task
from rankingmatch.methods.targets import histogram, update_average


@dataclass(eq=False)
class FreeMatch(Method):
    """FixMatch's losses under self-adaptive thresholds, plus self-adaptive fairness."""

    unlabeled_weight: float = shared_options.unlabeled_weight()
    fairness_weight: float = option(0.01, "w_f: weight of the fairness loss.", interval="[0, inf)")
    statistics_decay: float = shared_options.statistics_decay()
    weak_pass: WeakPass = shared_options.weak_pass()

    def prepare(self, task: Task) -> None:
        """Moving averages over weak views, all from 1/C: τ of max(q), p̃ of q, h̃ of the histogram of q̂."""
        self.confidence: Tensor = nn.Buffer(torch.tensor(1 / task.classes))
        self.probability: Tensor = nn.Buffer(torch.full((task.classes,), 1 / task.classes))
        self.frequency: Tensor = nn.Buffer(torch.full((task.classes,), 1 / task.classes))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(max(q) ≥ τ(q̂)) H(q̂, strong view) + w_f L_f."""
        (labeled,), (weak, strong) = batch.labeled, batch.unlabeled
        outputs = view_outputs(model, labeled, weak, strong, self.weak_pass)
        probabilities = outputs.weak_logits.softmax(1)
        self._observe(probabilities)
        # τ(c) = p̃(c) / max p̃ · τ, this batch included.
        thresholds = self.probability / self.probability.max() * self.confidence
        confidence, label = probabilities.max(1)
        pseudo = PseudoLabels(label, confidence >= thresholds[label])
        labeled_ce = F.cross_entropy(outputs.labeled.logits, batch.labels)
        unlabeled_ce = masked_cross_entropy(outputs.strong.logits, pseudo.labels, pseudo.confident)
        unfairness = fairness_loss(outputs.strong.logits, pseudo.confident, self.probability, self.frequency)
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce + self.fairness_weight * unfairness
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce, "fairness": unfairness}, pseudo)

    def _observe(self, probabilities: Tensor) -> None:
        """Take the predictions for a batch of weak views into the moving averages."""
        confidence, label = probabilities.max(1)
        count, classes = probabilities.shape
        update_average(self.confidence, confidence.mean(), self.statistics_decay)
        update_average(self.probability, probabilities.mean(0), self.statistics_decay)
        update_average(self.frequency, histogram(label, classes) / count, self.statistics_decay)


def fairness_loss(strong_logits: Tensor, confident: Tensor, probability: Tensor, frequency: Tensor) -> Tensor:
    """L_f = Σ_c a_c ln b_c, with a = SumNorm(p̃ / h̃) and b = SumNorm(p̄ / h̄); 0 if no row is confident.

    p̄ is the mean prediction for the confident strong views and h̄ the histogram of their argmax. A class that none of
    them is predicted as has no ratio p̄ / h̄; its term is left out.
    """
    predictions = strong_logits.softmax(1)
    mean = (predictions * confident[:, None]).sum(0)
    count = histogram(predictions.argmax(1), predictions.shape[1], confident)
    present = count > 0
    # SumNorm takes away the number of rows by which both p̄ and h̄ would be divided.
    ratio = torch.where(present, mean, 0) / count.clamp(min=1)
    # The total is 0 only if no class is present.
    share = ratio / torch.where(present.any(), ratio.sum(), 1)
    # h̃ of a class that is never predicted fades away: keep its ratio finite.
    target = probability / frequency.clamp(min=1e-12)
    terms = target / target.sum() * torch.where(present, share, 1).log()
    return terms.sum()
