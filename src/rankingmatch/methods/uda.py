"""UDA (Xie et al., 2020): sharpened predictions for weak views teach strong views."""

from dataclasses import dataclass

from torch import nn

from rankingmatch.core.schedule import Annealing, tsa_threshold
from rankingmatch.losses import kl_divergence, tsa_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method
from rankingmatch.methods.targets import pseudo_label, sharpen


@dataclass(eq=False)
class UDA(Method):
    """Divergence of strong views from confident, sharpened weak ones; easy labels may be left out at first (TSA)."""

    threshold: float = shared_options.threshold(0.8)
    sharpening: float = shared_options.sharpening(0.4)
    unlabeled_weight: float = shared_options.unlabeled_weight()
    tsa: Annealing = shared_options.tsa("none")
    weak_pass: WeakPass = shared_options.weak_pass()

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(confident) KL(sharpen(q) ‖ strong view)."""
        (labeled,), (weak, strong) = batch.labeled, batch.unlabeled
        outputs = view_outputs(model, labeled, weak, strong, self.weak_pass)
        pseudo = pseudo_label(outputs.weak_logits, self.threshold)
        targets = sharpen(outputs.weak_logits.softmax(1), self.sharpening)
        classes = targets.shape[1]
        easy = tsa_threshold(self.tsa, context.step, context.steps, classes)
        labeled_ce = tsa_cross_entropy(outputs.labeled.logits, batch.labels, easy)
        divergence = (kl_divergence(outputs.strong.logits, targets) * pseudo.confident).mean()
        total = labeled_ce + self.unlabeled_weight * divergence
        return Losses(total, {"labeled_ce": labeled_ce, "divergence": divergence}, pseudo)
