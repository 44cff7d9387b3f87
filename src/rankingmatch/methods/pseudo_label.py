"""Pseudo-Label (Lee, 2013): confident predictions are the targets of the same images."""

from torch import nn
from torch.nn import functional as F

from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods.passes import joint_logits
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, register_method, shared
from rankingmatch.methods.targets import pseudo_label


@register_method("pseudo-label", preset={"mu": 1})
class PseudoLabel(Method):
    """Cross-entropy of confident unlabeled images with their own argmax, with an increasing weight."""

    reference = "Lee 2013"
    good_for = "a baseline without strong augmentation"
    row = ("weak", "threshold", "one view")
    unlabeled_views = ("weak",)
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight")
    ramp: float = shared("ramp")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u(s) (1/μB) Σ 1(confident) H(q̂, q): target and prediction belong to the same view."""
        labeled_logits, weak_logits = joint_logits(model, *batch.labeled, *batch.unlabeled)
        pseudo = pseudo_label(weak_logits.detach(), self.threshold)
        labeled_ce = F.cross_entropy(labeled_logits, batch.labels)
        unlabeled_ce = masked_cross_entropy(weak_logits, pseudo.labels, pseudo.confident)
        total = labeled_ce + self.unlabeled_weight * context.ramp(self.ramp) * unlabeled_ce
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)
