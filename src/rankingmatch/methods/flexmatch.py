"""FlexMatch (Zhang et al., 2021): FixMatch with a lower threshold for classes that are learned less well."""

from dataclasses import dataclass

from torch import Tensor, nn

from rankingmatch.methods import shared_options
from rankingmatch.methods.fixmatch import fixmatch_losses
from rankingmatch.methods.learned_labels import LearnedLabels
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task
from rankingmatch.methods.rebalancing import Rebalance, make_remedy
from rankingmatch.methods.targets import pseudo_label

__all__ = ["FlexMatch", "flexible_thresholds"]


@dataclass(eq=False)
class FlexMatch(Method):
    """FixMatch's losses with thresholds per class, from the last confident labels of all unlabeled images."""

    threshold: float = shared_options.threshold()
    unlabeled_weight: float = shared_options.unlabeled_weight()
    weak_pass: WeakPass = shared_options.weak_pass()
    rebalance: Rebalance = shared_options.rebalance()
    rebalance_strength: float | None = shared_options.rebalance_strength()

    def prepare(self, task: Task) -> None:
        """Create the memory of the last confident label of every unlabeled image."""
        self.remedy = make_remedy(self.rebalance, self.rebalance_strength, task)
        self.learned = LearnedLabels(task)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(max(q) ≥ T(q̂)) H(q̂, strong view)."""
        outputs = self.remedy(view_outputs(model, batch, self.weak_pass), batch, context)
        # The thresholds depend on the earlier steps only; this batch counts from the next step on.
        pseudo = pseudo_label(outputs.weak_logits, flexible_thresholds(self.learned.counts, self.threshold))
        self.learned.update(batch.rows, pseudo_label(outputs.weak_logits, self.threshold))
        return fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)


def flexible_thresholds(counts: Tensor, threshold: float) -> Tensor:
    """T(c) = τ β(c) / (2 - β(c)), β(c) = images learned as c / max(most images of a class, images not yet learned).

    `counts` are those of `LearnedLabels` (1 + classes,); the thresholds are (classes,).
    """
    beta = counts[1:] / counts.max()
    return threshold * beta / (2 - beta)
