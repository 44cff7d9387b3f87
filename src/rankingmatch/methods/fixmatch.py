"""FixMatch (Sohn et al., 2020): confident pseudo-labels of weak views are the targets of strong views."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import ViewOutputs, WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task
from rankingmatch.methods.rebalancing import Rebalance, make_remedy
from rankingmatch.methods.targets import pseudo_label

__all__ = ["FixMatch", "fixmatch_losses"]


@dataclass(eq=False)
class FixMatch(Method):
    """Eq. (2) + λ_u · Eq. (3)."""

    threshold: float = shared_options.threshold()
    unlabeled_weight: float = shared_options.unlabeled_weight()
    weak_pass: WeakPass = shared_options.weak_pass()
    skip_unsure: bool = shared_options.skip_unsure()
    rebalance: Rebalance = shared_options.rebalance()
    rebalance_strength: float | None = shared_options.rebalance_strength()

    def prepare(self, task: Task) -> None:
        """Check that strong views can be skipped if they are to be, and make the remedy."""
        shared_options.skip_threshold(self.skip_unsure, self.weak_pass, self.threshold, self.rebalance)
        self.remedy = make_remedy(self.rebalance, self.rebalance_strength, task)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s^CE + λ_u L_u^CE."""
        skip_below = shared_options.skip_threshold(self.skip_unsure, self.weak_pass, self.threshold)
        outputs = self.remedy(view_outputs(model, batch, self.weak_pass, skip_below), batch, context)
        pseudo = pseudo_label(outputs.weak_logits, self.threshold)
        return fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)


def fixmatch_losses(
    outputs: ViewOutputs,
    labels: Tensor,
    pseudo: PseudoLabels,
    unlabeled_weight: float,
    row_weights: Tensor | None = None,
) -> Losses:
    """L = (1/B) Σ H(label, labeled view) + λ_u (1/μB) Σ w H(pseudo-label, strong view).

    The weights w (μB,) are 1 for confident rows and 0 for others unless `row_weights` are given.
    """
    labeled_ce = F.cross_entropy(outputs.labeled_logits, labels)
    weights = pseudo.confident if row_weights is None else row_weights
    unlabeled_ce = masked_cross_entropy(outputs.strong_logits, pseudo.labels, weights)
    total = outputs.with_extra_losses(labeled_ce + unlabeled_weight * unlabeled_ce)
    return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce, **outputs.extra_losses}, pseudo)
