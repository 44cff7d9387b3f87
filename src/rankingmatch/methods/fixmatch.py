"""FixMatch (Sohn et al., 2020): confident pseudo-labels of weak views are the targets of strong views."""

from rankingmatch.methods.passes import ViewOutputs, fixmatch_losses
from rankingmatch.methods.protocol import Batch, Context, Losses, register_method, shared
from rankingmatch.methods.rebalancing import Rebalanced
from rankingmatch.methods.targets import (
    pseudo_label,
)


@register_method("fixmatch-cta", note="CTAugment", preset={"strong": "ctaugment"})
@register_method("fixmatch-ra")
class FixMatch(Rebalanced):
    """Eq. (2) + λ_u · Eq. (3)."""

    reference = "Sohn 2020"
    good_for = "a fast, well-known baseline"
    row = ("weak, strong", "threshold", "RandAugment")
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight")

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """L = L_s^CE + λ_u L_u^CE."""
        pseudo = pseudo_label(outputs.weak.logits, self.threshold)
        return fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)
