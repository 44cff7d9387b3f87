"""FixMatch (Sohn et al., 2020): confident pseudo-labels of weak views are the targets of strong views."""

from dataclasses import replace

from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import ViewOutputs
from rankingmatch.methods.protocol import METHODS, Batch, Context, Losses, register_method
from rankingmatch.methods.targets import pseudo_label
from rankingmatch.methods.three_views import Rebalanced, fixmatch_losses


@register_method(
    "fixmatch-ra",
    row=("Sohn 2020", "weak, strong", "threshold", "RandAugment"),
    good_for="a fast, well-known baseline",
)
class FixMatch(Rebalanced):
    """Eq. (2) + λ_u · Eq. (3)."""

    threshold: float = shared_options.threshold()
    unlabeled_weight: float = shared_options.unlabeled_weight()

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """L = L_s^CE + λ_u L_u^CE."""
        pseudo = pseudo_label(outputs.weak.logits, self.threshold)
        return fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)


METHODS["fixmatch-cta"] = replace(METHODS["fixmatch-ra"], note="CTAugment", preset={"strong": "ctaugment"})
