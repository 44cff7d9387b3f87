"""ReFixMatch (Nguyen and Yang, 2023): FixMatch that also learns from images below the threshold, by soft targets."""

from dataclasses import dataclass

from torch import nn

from rankingmatch.losses import kl_divergence
from rankingmatch.methods import shared_options
from rankingmatch.methods.fixmatch import fixmatch_losses
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method
from rankingmatch.methods.targets import pseudo_label, sharpen

__all__ = ["ReFixMatch"]


@dataclass(eq=False)
class ReFixMatch(Method):
    """FixMatch's losses, and a KL divergence to the sharpened prediction where the pseudo-label is not confident."""

    threshold: float = shared_options.threshold()
    sharpening: float = shared_options.sharpening()
    unlabeled_weight: float = shared_options.unlabeled_weight()
    weak_pass: WeakPass = shared_options.weak_pass()

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ [1(confident) H(q̂, strong) + 1(not confident) KL(sharpen(q) ‖ strong)]."""
        outputs = view_outputs(model, batch, self.weak_pass)
        pseudo = pseudo_label(outputs.weak_logits, self.threshold)
        losses = fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)
        targets = sharpen(outputs.weak_logits.softmax(1), self.sharpening)
        divergence = (kl_divergence(outputs.strong.logits, targets) * ~pseudo.confident).mean()
        total = losses.total + self.unlabeled_weight * divergence
        return Losses(total, {**losses.parts, "divergence": divergence}, pseudo)
