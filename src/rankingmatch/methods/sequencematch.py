"""SequenceMatch (Nguyen, 2023): FlexMatch with a medium view between the weak and the strong one."""

import torch
from torch import nn
from torch.nn import functional as F

from rankingmatch.losses import kl_divergence, masked_cross_entropy
from rankingmatch.methods.passes import joint_logits
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task, register_method, shared
from rankingmatch.methods.targets import (
    LearnedLabels,
    pseudo_label,
    sharpen,
)


@register_method("sequencematch")
class SequenceMatch(Method):
    """FlexMatch's losses, and divergences from weak to medium, from medium to strong, and from weak to strong views."""

    reference = "Nguyen 2023"
    good_for = "strong views that are too far from weak ones"
    row = ("weak, medium, strong", "threshold per class", "a view in between")
    unlabeled_views = ("weak", "medium", "strong")
    threshold: float = shared("threshold")
    sharpening: float = shared("sharpening")
    unlabeled_weight: float = shared("unlabeled_weight")

    def prepare(self, task: Task) -> None:
        """Create the memory of the last confident label of every unlabeled image."""
        self.learned = LearnedLabels(task)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u [(1/μB) Σ 1(max(q) ≥ T(q̂)) H(q̂, strong view) + the sum of D over the pairs of views]."""
        labeled, weak, medium, strong = joint_logits(model, *batch.labeled, *batch.unlabeled)
        # The thresholds depend on the earlier steps only; this batch counts from the next step on.
        pseudo = pseudo_label(weak.detach(), self.learned.thresholds(self.threshold))
        self.learned.update(batch.rows, pseudo_label(weak.detach(), self.threshold))
        labeled_ce = F.cross_entropy(labeled, batch.labels)
        unlabeled_ce = masked_cross_entropy(strong, pseudo.labels, pseudo.confident)
        # D = (1/μB) Σ 1(max(q) ≥ τ) KL(sharpen(q) ‖ prediction), where q is the prediction for the milder view
        divergences = []
        for milder, logits in ((weak, medium), (medium, strong), (weak, strong)):
            q = milder.detach().softmax(1)
            confident = q.amax(1) >= self.threshold
            divergences.append((kl_divergence(logits, sharpen(q, self.sharpening)) * confident).mean())
        divergence = torch.stack(divergences).sum()
        total = labeled_ce + self.unlabeled_weight * (unlabeled_ce + divergence)
        parts = {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce, "divergence": divergence}
        return Losses(total, parts, pseudo)
