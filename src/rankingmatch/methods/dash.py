"""Dash (Xu et al., 2021): FixMatch with a threshold on the loss of a pseudo-label, which falls during training."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.options import option
from rankingmatch.losses import soft_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task
from rankingmatch.methods.targets import sharpen

__all__ = ["Dash", "dynamic_threshold"]

SLACK = 1.0001  # C: how far above the labeled loss the threshold starts
PERIODS = 1024 / 10  # the threshold falls every 10 of 1024 epochs


@dataclass(eq=False)
class Dash(Method):
    """FixMatch's losses for the images whose loss under their own pseudo-label is at most ρ_t."""

    unlabeled_weight: float = shared_options.unlabeled_weight()
    sharpening: float = shared_options.sharpening()
    loss_decay: float = option(
        1.27, "γ: factor by which the threshold on the loss falls, every 10/1024 of training.", interval="(1, inf)"
    )
    least_loss: float = option(
        0.05,
        "ρ_min: smallest threshold on the loss of a pseudo-label. Pseudo-labels are hard from there on.",
        interval="(0, inf)",
    )
    warm_up: float = option(
        1 / 512,
        "Fraction of training on labeled images only; their loss at its end sets the threshold ρ.",
        interval="[0, 1)",
    )
    weak_pass: WeakPass = shared_options.weak_pass()

    def prepare(self, task: Task) -> None:
        """Create ρ̂, the mean loss of labeled images after the warm-up."""
        self.labeled_loss: Tensor = nn.Buffer(torch.tensor(0.0))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(H(t, weak view) ≤ ρ_t) H(t, strong view)."""
        outputs = view_outputs(model, batch, self.weak_pass)
        labeled_ce = F.cross_entropy(outputs.labeled.logits, batch.labels)
        after = context.step - int(self.warm_up * context.steps)  # steps since the warm-up
        if after == 0:
            self.labeled_loss.copy_(labeled_ce.detach())
        period = int(PERIODS * after / context.steps)
        threshold = dynamic_threshold(self.labeled_loss, period, self.loss_decay, self.least_loss)
        targets = self._targets(outputs.weak_logits.softmax(1), threshold)
        own = -(targets * outputs.weak_logits.log_softmax(1)).sum(1)
        used = (own <= threshold) & (after >= 0)
        # H(t · used, ·) = used · H(t, ·)
        unlabeled_ce = soft_cross_entropy(outputs.strong.logits, targets * used[:, None])
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce
        pseudo = PseudoLabels(targets.argmax(1), used)
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)

    def _targets(self, probabilities: Tensor, threshold: Tensor) -> Tensor:
        """t: the sharpened predictions; their argmax as one-hot rows once the threshold has reached ρ_min."""
        hard = F.one_hot(probabilities.argmax(1), probabilities.shape[1]).to(probabilities)
        return torch.where(threshold <= self.least_loss, hard, sharpen(probabilities, self.sharpening))


def dynamic_threshold(labeled_loss: Tensor, period: int, decay: float, least: float) -> Tensor:
    """ρ = max(C γ^-period ρ̂, ρ_min), for the labeled loss ρ̂ after the warm-up."""
    return (SLACK * decay**-period * labeled_loss).clamp(min=least)
