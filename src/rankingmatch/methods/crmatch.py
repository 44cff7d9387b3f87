"""CR-Match (Fan et al., 2021): FixMatch whose features tell weak and strong views apart, and a rotation loss."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.augment import quarter_turns
from rankingmatch.core.options import option
from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods.passes import joint_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task, register_method, shared
from rankingmatch.methods.targets import pseudo_label


@register_method("crmatch")
class CRMatch(Method):
    """FixMatch's losses, the cosine between projected features of weak and strong views, and a rotation loss."""

    reference = "Fan 2021"
    good_for = "images whose orientation carries information"
    row = ("weak, strong", "threshold", "feature distance, rotation loss")
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight")
    distance_weight: float = option(1.0, "λ_d: weight of the feature distance loss.", interval="[0, inf)")
    rotation_weight: float = option(1.0, "Weight of the rotation loss.", interval="[0, inf)")

    def prepare(self, task: Task) -> None:
        """Create the projection of the features, and the head that predicts rotations."""
        width = task.features or task.classes  # if the network returns logits only, they take these
        self.projection = nn.Linear(width, width)
        self.rotation_head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u L_u + λ_d (1/μB) Σ 1(confident) max(0, cos(z_weak, z_strong)) + λ_r L_r."""
        rotated, turns = rotations(batch.unlabeled[0][: len(batch.labels)])
        labeled, weak, strong, turned = joint_outputs(model, *batch.labeled, *batch.unlabeled, rotated)
        pseudo = pseudo_label(weak.logits.detach(), self.threshold)
        labeled_ce = F.cross_entropy(labeled.logits, batch.labels)
        unlabeled_ce = masked_cross_entropy(strong.logits, pseudo.labels, pseudo.confident)
        # Both views have gradients. A cosine below 0 costs nothing.
        cosine = F.cosine_similarity(self.projection(weak.features), self.projection(strong.features))
        distance = (cosine.clamp(min=0) * pseudo.confident).mean()
        rotation_ce = F.cross_entropy(self.rotation_head(turned.features), turns)
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce
        total = total + self.distance_weight * distance + self.rotation_weight * rotation_ce
        parts = {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}
        return Losses(total, {**parts, "feature_cosine": distance, "rotation_ce": rotation_ce}, pseudo)


def rotations(images: Tensor) -> tuple[Tensor, Tensor]:
    """The images rotated by 0, 1, 2 and 3 quarter turns, or by 0 and 2 if they are not square; and the turns."""
    every = range(4) if images.shape[2] == images.shape[3] else range(0, 4, 2)
    turns = torch.tensor(every).repeat_interleave(len(images))
    return quarter_turns(images.repeat(len(every), 1, 1, 1), turns), turns.to(images.device)
