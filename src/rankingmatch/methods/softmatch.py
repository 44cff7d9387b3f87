"""SoftMatch (Chen et al., 2023): every pseudo-label counts, the less the further its confidence is below average."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.options import option
from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task
from rankingmatch.methods.targets import update_average


@dataclass(eq=False)
class SoftMatch(Method):
    """FixMatch's losses with a truncated Gaussian of the confidence as weight, and uniform alignment."""

    unlabeled_weight: float = shared_options.unlabeled_weight()
    sigmas: float = option(2.0, "n: the Gaussian's deviation is σ / n.", interval="(0, inf)")
    uniform_alignment: bool = option(True, "Take confidences after dividing by the average prediction.")
    statistics_decay: float = shared_options.statistics_decay()
    weak_pass: WeakPass = shared_options.weak_pass()

    def prepare(self, task: Task) -> None:
        """Moving averages over weak views: mean μ and variance σ² of the confidence, and the prediction p̃."""
        self.mean: Tensor = nn.Buffer(torch.tensor(1 / task.classes))
        self.variance: Tensor = nn.Buffer(torch.tensor(1.0))
        self.probability: Tensor = nn.Buffer(torch.full((task.classes,), 1 / task.classes))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ λ(c) H(q̂, strong view), c the confidence after alignment."""
        (labeled,), (weak, strong) = batch.labeled, batch.unlabeled
        outputs = view_outputs(model, labeled, weak, strong, self.weak_pass)
        probabilities = outputs.weak_logits.softmax(1)
        confidence = self._observed_confidence(probabilities)
        weights = truncated_gaussian(confidence, self.mean, self.variance / self.sigmas**2)
        # All rows are learned from; those said to be confident have the full weight.
        pseudo = PseudoLabels(probabilities.argmax(1), confidence >= self.mean)
        labeled_ce = F.cross_entropy(outputs.labeled.logits, batch.labels)
        unlabeled_ce = masked_cross_entropy(outputs.strong.logits, pseudo.labels, weights)
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)

    def _observed_confidence(self, probabilities: Tensor) -> Tensor:
        """The confidences of a batch of weak views, which is taken into the moving averages first."""
        count = len(probabilities)
        update_average(self.probability, probabilities.mean(0), self.statistics_decay)
        if self.uniform_alignment:
            probabilities = uniformly_aligned(probabilities, self.probability)
        confidence = probabilities.amax(1)
        # The unbiased variance; that of a single row is 0.
        variance = confidence.var(correction=0) * count / max(count - 1, 1)
        update_average(self.mean, confidence.mean(), self.statistics_decay)
        update_average(self.variance, variance, self.statistics_decay)
        return confidence


def uniformly_aligned(probabilities: Tensor, average: Tensor) -> Tensor:
    """UA(q) = Normalize(q · (1/C) / p̃): what q says beyond the average prediction p̃, as if classes were even."""
    # The factor 1/C falls out. A class that is never predicted has p̃ near 0: keep its ratio finite.
    ratio = probabilities / average.clamp(min=1e-6)
    return ratio / ratio.sum(1, keepdim=True)


def truncated_gaussian(confidence: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """λ(c) = exp(-max(μ - c, 0)² / 2σ²): 1 from the mean upwards."""
    below = (mean - confidence).clamp(min=0)
    return (-below.square() / (2 * variance.clamp(min=1e-12))).exp()
