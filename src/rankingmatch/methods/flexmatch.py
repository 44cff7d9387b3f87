"""FlexMatch (Zhang et al., 2021): FixMatch with a lower threshold for classes that are learned less well."""

from torch import Tensor

from rankingmatch.methods.passes import ViewOutputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Task, register_method, shared
from rankingmatch.methods.targets import LearnedLabels, pseudo_label
from rankingmatch.methods.three_views import Rebalanced, fixmatch_losses


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
        pseudo = pseudo_label(outputs.weak.logits, flexible_thresholds(self.learned.counts, self.threshold))
        self.learned.update(batch.rows, pseudo_label(outputs.weak.logits, self.threshold))
        return fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)


def flexible_thresholds(counts: Tensor, threshold: float) -> Tensor:
    """T(c) = τ β(c) / (2 - β(c)), β(c) = images learned as c / max(most images of a class, images not yet learned).

    `counts` are those of `LearnedLabels` (1 + classes,); the thresholds are (classes,).
    """
    beta = counts[1:] / counts.max()
    return threshold * beta / (2 - beta)
