"""AdaMatch (Berthelot et al., 2022): FixMatch with a threshold relative to labeled images, and alignment."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.options import option
from rankingmatch.losses import soft_cross_entropy
from rankingmatch.methods.passes import joint_logits, running_statistics_kept
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task, register_method, shared
from rankingmatch.methods.targets import (
    AVERAGED_BATCHES,
    align_distribution,
)


@register_method("adamatch", preset={"mu": 3})
class AdaMatch(Method):
    """Cross-entropies of weak and strong labeled views, and of confident strong views with aligned targets."""

    reference = "Berthelot 2022"
    good_for = "labeled and unlabeled images that differ in distribution"
    row = ("weak, strong", "alignment, relative threshold", "labeled images in two passes")
    labeled_views = ("weak", "strong")
    relative_threshold: float = option(
        0.9,
        "τ: use a pseudo-label if its probability is at least this fraction of the mean confidence on labeled images.",
        interval="(0, 1]",
    )
    unlabeled_weight: float = shared("unlabeled_weight")

    def prepare(self, task: Task) -> None:
        """Create the mean predictions for the weak views of recent batches, initially uniform."""
        self.labeled: Tensor = nn.Buffer(torch.full((AVERAGED_BATCHES, task.classes), 1 / task.classes))
        self.unlabeled: Tensor = nn.Buffer(torch.full((AVERAGED_BATCHES, task.classes), 1 / task.classes))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = (1/B) Σ [H(label, weak) + H(label, strong)] + λ_u μ(s) (1/μB) Σ 1(max(q̃) ≥ c_τ) H(q̃, strong view)."""
        # Logits of labeled images are at random points between those of two passes, which differ in BatchNorm's batch
        # statistics: of labeled views only, and of all views.
        labeled = torch.cat(batch.labeled)
        with running_statistics_kept(model):
            alone: Tensor = model(labeled).logits
        together, weak, strong = joint_logits(model, labeled, *batch.unlabeled)
        point = torch.rand(alone.shape, generator=context.generator).to(alone)
        labeled_weak, labeled_strong = torch.lerp(together, alone, point).split(len(batch.labels))
        # q̃ = Normalize(q · E[q_labeled] / E[q]), with means that include this batch
        known, predicted = labeled_weak.detach().softmax(1), weak.detach().softmax(1)
        self.labeled[context.step % AVERAGED_BATCHES] = known.mean(0)
        self.unlabeled[context.step % AVERAGED_BATCHES] = predicted.mean(0)
        targets = align_distribution(predicted, self.labeled.mean(0), self.unlabeled.mean(0))
        # c_τ = τ · mean confidence of the labeled weak views
        confident = targets.amax(1) >= self.relative_threshold * known.amax(1).mean()
        labeled_ce = F.cross_entropy(labeled_weak, batch.labels) + F.cross_entropy(labeled_strong, batch.labels)
        unlabeled_ce = soft_cross_entropy(strong, targets * confident[:, None])
        # μ(s) = 1/2 - cos(min(π, 2πs/S)) / 2 rises from 0 to 1 over the first half of training.
        rising = 0.5 - math.cos(min(math.pi, 2 * math.pi * context.step / context.steps)) / 2
        total = labeled_ce + self.unlabeled_weight * rising * unlabeled_ce
        pseudo = PseudoLabels(targets.argmax(1), confident)
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)
