"""DeFixMatch (Schmutz et al., 2023): FixMatch whose unlabeled loss is debiased by the same loss on labeled images."""

from torch import nn
from torch.nn import functional as F

from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods.passes import joint_logits
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, register_method, shared
from rankingmatch.methods.targets import (
    pseudo_label,
)


@register_method("defixmatch")
class DeFixMatch(Method):
    """The supervised loss, plus FixMatch's loss on unlabeled images, minus FixMatch's loss on labeled images."""

    reference = "Schmutz 2023"
    good_for = "many labels: safe if pseudo-labels are often wrong"
    row = ("weak, strong", "threshold", "unbiased unlabeled loss")
    labeled_views = ("weak", "strong")
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight", 0.5)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = (1/2B) Σ [H(y, weak) + H(y, strong)] + λ [(1/μB) Σ_u h - (1/B) Σ_l h], h = 1(confident) H(q̂, strong)."""
        labeled_weak, labeled_strong, weak, strong = joint_logits(model, *batch.labeled, *batch.unlabeled)
        labeled_ce = (F.cross_entropy(labeled_weak, batch.labels) + F.cross_entropy(labeled_strong, batch.labels)) / 2
        pseudo = pseudo_label(weak.detach(), self.threshold)
        of_labeled = pseudo_label(labeled_weak.detach(), self.threshold)
        unlabeled_ce = masked_cross_entropy(strong, pseudo.labels, pseudo.confident)
        # In expectation, the loss on labeled images equals the one on unlabeled images: their difference adds no bias.
        debiasing_ce = masked_cross_entropy(labeled_strong, of_labeled.labels, of_labeled.confident)
        total = labeled_ce + self.unlabeled_weight * (unlabeled_ce - debiasing_ce)
        parts = {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce, "debiasing_ce": debiasing_ce}
        return Losses(total, parts, pseudo)
