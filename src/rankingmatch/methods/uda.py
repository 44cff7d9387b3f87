"""UDA (Xie et al., 2020): sharpened predictions for weak views are the targets of strong views."""

from dataclasses import dataclass

from torch import nn

from rankingmatch.core.schedule import Annealing, tsa_threshold
from rankingmatch.losses import kl_divergence, tsa_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task
from rankingmatch.methods.rebalancing import Rebalance, make_remedy
from rankingmatch.methods.targets import pseudo_label, sharpen

__all__ = ["UDA"]


@dataclass(eq=False)
class UDA(Method):
    """KL divergence between confident, sharpened weak views and strong views; optional signal annealing (TSA)."""

    threshold: float = shared_options.threshold(0.8)
    sharpening: float = shared_options.sharpening(0.4)
    unlabeled_weight: float = shared_options.unlabeled_weight()
    tsa: Annealing = shared_options.tsa("none")
    weak_pass: WeakPass = shared_options.weak_pass()
    rebalance: Rebalance = shared_options.rebalance()
    rebalance_strength: float | None = shared_options.rebalance_strength()

    def prepare(self, task: Task) -> None:
        """Make the remedy."""
        self.remedy = make_remedy(self.rebalance, self.rebalance_strength, task)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(confident) KL(sharpen(q) ‖ strong view)."""
        outputs = self.remedy(view_outputs(model, batch, self.weak_pass), batch, context)
        pseudo = pseudo_label(outputs.weak_logits, self.threshold)
        targets = sharpen(outputs.weak_logits.softmax(1), self.sharpening)
        annealed = tsa_threshold(self.tsa, context.step, context.steps, targets.shape[1])
        labeled_ce = tsa_cross_entropy(outputs.labeled_logits, batch.labels, annealed)
        divergence = (kl_divergence(outputs.strong_logits, targets) * pseudo.confident).mean()
        total = outputs.with_extra_losses(labeled_ce + self.unlabeled_weight * divergence)
        parts = {"labeled_ce": labeled_ce, "divergence": divergence, **outputs.extra_losses}
        return Losses(total, parts, pseudo)
