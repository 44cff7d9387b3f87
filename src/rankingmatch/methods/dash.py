"""Dash (Xu et al., 2021): FixMatch with a threshold on the loss of a pseudo-label, which falls during training."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.options import option
from rankingmatch.losses import soft_cross_entropy
from rankingmatch.methods.passes import three_views
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task, register_method, shared
from rankingmatch.methods.targets import (
    sharpen,
)


@register_method("dash")
class Dash(Method):
    """FixMatch's losses for the images whose loss under their own pseudo-label is at most ρ_t."""

    reference = "Xu 2021"
    good_for = "a threshold that becomes stricter during training"
    row = ("weak, strong", "sharpening, threshold on the loss", "falling threshold")
    unlabeled_weight: float = shared("unlabeled_weight")
    sharpening: float = shared("sharpening")
    loss_decay: float = option(1.27, "γ: ρ is divided by this every 10/1024 of training.", interval="(1, inf)")
    least_loss: float = option(0.05, "ρ_min: smallest ρ. Pseudo-labels are hard from there on.", interval="(0, inf)")
    warm_up: float = option(
        1 / 512,
        "Fraction of training on labeled images only. Their loss then sets ρ, the largest loss of a used pseudo-label.",
        interval="[0, 1)",
    )

    def prepare(self, task: Task) -> None:
        """Create ρ̂, the mean loss of labeled images after the warm-up."""
        self.labeled_loss: Tensor = nn.Buffer(torch.tensor(0.0))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(H(t, weak view) ≤ ρ_t) H(t, strong view)."""
        outputs = three_views(model, batch)
        labeled_ce = F.cross_entropy(outputs.labeled.logits, batch.labels)
        after = context.step - int(self.warm_up * context.steps)  # steps since the warm-up
        if after == 0:
            self.labeled_loss.copy_(labeled_ce.detach())
        # ρ = max(C γ^-period ρ̂, ρ_min), C = 1.0001; it falls every 10 of 1024 epochs.
        period = int(1024 / 10 * after / context.steps)
        threshold = (1.0001 * self.loss_decay**-period * self.labeled_loss).clamp(min=self.least_loss)
        # t: the sharpened predictions; their argmax as one-hot rows once the threshold has reached ρ_min
        soft = outputs.weak.logits.softmax(1)
        hard = F.one_hot(soft.argmax(1), soft.shape[1]).to(soft)
        targets = torch.where(threshold <= self.least_loss, hard, sharpen(soft, self.sharpening))
        own = -(targets * outputs.weak.logits.log_softmax(1)).sum(1)
        used = (own <= threshold) & (after >= 0)
        unlabeled_ce = soft_cross_entropy(outputs.strong.logits, targets * used[:, None])
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce
        pseudo = PseudoLabels(targets.argmax(1), used)
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)
