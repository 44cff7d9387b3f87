"""ReFixMatch (Nguyen and Yang, 2023): FixMatch that also learns from images below the threshold, by soft targets."""

from torch import nn

from rankingmatch.losses import kl_divergence
from rankingmatch.methods.passes import fixmatch_losses, three_views
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, register_method, shared
from rankingmatch.methods.targets import (
    pseudo_label,
    sharpen,
)


@register_method("refixmatch")
class ReFixMatch(Method):
    """FixMatch's losses, and a KL divergence to the sharpened prediction where the pseudo-label is not confident."""

    reference = "Nguyen 2023"
    good_for = "using images below the threshold, too"
    row = ("weak, strong", "threshold, sharpening", "soft targets below the threshold")
    threshold: float = shared("threshold")
    sharpening: float = shared("sharpening")
    unlabeled_weight: float = shared("unlabeled_weight")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ [1(confident) H(q̂, strong) + 1(not confident) KL(sharpen(q) ‖ strong)]."""
        outputs = three_views(model, batch)
        pseudo = pseudo_label(outputs.weak.logits, self.threshold)
        losses = fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)
        targets = sharpen(outputs.weak.logits.softmax(1), self.sharpening)
        divergence = (kl_divergence(outputs.strong.logits, targets) * ~pseudo.confident).mean()
        total = losses.total + self.unlabeled_weight * divergence
        return Losses(total, {**losses.parts, "divergence": divergence}, pseudo)
