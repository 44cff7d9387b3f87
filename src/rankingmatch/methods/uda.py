"""UDA (Xie et al., 2020): sharpened predictions for weak views are the targets of strong views."""

from rankingmatch.core.schedule import Annealing, tsa_threshold
from rankingmatch.losses import kl_divergence, tsa_cross_entropy
from rankingmatch.methods.passes import ViewOutputs
from rankingmatch.methods.protocol import Batch, Context, Losses, register_method, shared
from rankingmatch.methods.rebalancing import Rebalanced
from rankingmatch.methods.targets import (
    pseudo_label,
    sharpen,
)


@register_method("uda")
class UDA(Rebalanced):
    """KL divergence between confident, sharpened weak views and strong views; optional signal annealing (TSA)."""

    reference = "Xie 2020"
    good_for = "soft targets at a lower threshold"
    row = ("weak, strong", "sharpening, threshold", "optional signal annealing (TSA)")
    threshold: float = shared("threshold", 0.8)
    sharpening: float = shared("sharpening", 0.4)
    unlabeled_weight: float = shared("unlabeled_weight")
    tsa: Annealing = shared("tsa")

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(confident) KL(sharpen(q) ‖ strong view)."""
        pseudo = pseudo_label(outputs.weak.logits, self.threshold)
        targets = sharpen(outputs.weak.logits.softmax(1), self.sharpening)
        annealed = tsa_threshold(self.tsa, context.step, context.steps, targets.shape[1])
        labeled_ce = tsa_cross_entropy(outputs.labeled_logits, batch.labels, annealed)
        divergence = (kl_divergence(outputs.strong_logits, targets) * pseudo.confident).mean()
        total = labeled_ce + self.unlabeled_weight * divergence
        return Losses(total, {"labeled_ce": labeled_ce, "divergence": divergence}, pseudo)
