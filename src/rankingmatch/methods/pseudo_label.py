"""Pseudo-Label (Lee, 2013): confident predictions are the targets of the same images."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.nn import functional as F

from rankingmatch.core.schedule import linear_ramp
from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import joint_logits
from rankingmatch.methods.protocol import Batch, Context, Losses, Method
from rankingmatch.methods.targets import pseudo_label

__all__ = ["PseudoLabel"]


@dataclass(eq=False)
class PseudoLabel(Method):
    """Cross-entropy of confident unlabeled images with their own argmax, with an increasing weight."""

    unlabeled_views: ClassVar[tuple[str, ...]] = ("weak",)
    threshold: float = shared_options.threshold()
    unlabeled_weight: float = shared_options.unlabeled_weight()
    ramp: float = shared_options.ramp(0.4)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u(s) (1/μB) Σ 1(confident) H(q̂, q): target and prediction belong to the same view."""
        (labeled,), (weak,) = batch.labeled, batch.unlabeled
        labeled_logits, weak_logits = joint_logits(model, labeled, weak)
        pseudo = pseudo_label(weak_logits.detach(), self.threshold)
        labeled_ce = F.cross_entropy(labeled_logits, batch.labels)
        unlabeled_ce = masked_cross_entropy(weak_logits, pseudo.labels, pseudo.confident)
        weight = self.unlabeled_weight * linear_ramp(context.step, context.steps, self.ramp)
        total = labeled_ce + weight * unlabeled_ce
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)
