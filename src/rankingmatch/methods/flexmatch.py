"""FlexMatch (Zhang et al., 2021): FixMatch with a lower threshold for classes that are learned less well."""

from rankingmatch.methods.passes import ViewOutputs, fixmatch_losses
from rankingmatch.methods.protocol import Batch, Context, Losses, Task, register_method, shared
from rankingmatch.methods.rebalancing import Rebalanced
from rankingmatch.methods.targets import (
    LearnedLabels,
    pseudo_label,
)


@register_method("flexmatch")
class FlexMatch(Rebalanced):
    """FixMatch's losses with thresholds per class, from the last confident labels of all unlabeled images."""

    reference = "Zhang 2021"
    good_for = "classes that differ in difficulty"
    row = ("weak, strong", "threshold per class", "learned counts")
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight")

    def prepare(self, task: Task) -> None:
        """Create the memory of the last confident label of every unlabeled image."""
        super().prepare(task)
        self.learned = LearnedLabels(task)

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(max(q) ≥ T(q̂)) H(q̂, strong view)."""
        # The thresholds depend on the earlier steps only; this batch counts from the next step on.
        pseudo = pseudo_label(outputs.weak.logits, self.learned.thresholds(self.threshold))
        self.learned.update(batch.rows, pseudo_label(outputs.weak.logits, self.threshold))
        return fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)
