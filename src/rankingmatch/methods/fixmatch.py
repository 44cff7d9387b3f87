"""FixMatch (Sohn et al., 2020): confident pseudo-labels of weak views teach strong views."""

from dataclasses import dataclass

from torch import nn
from torch.nn import functional as F

from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task
from rankingmatch.methods.targets import pseudo_label


@dataclass(eq=False)
class FixMatch(Method):
    """Eq. (2) + λ_u · Eq. (3)."""

    threshold: float = shared_options.threshold()
    unlabeled_weight: float = shared_options.unlabeled_weight()
    weak_pass: WeakPass = shared_options.weak_pass()
    skip_unsure: bool = shared_options.skip_unsure()

    def prepare(self, task: Task) -> None:
        """Refuse to skip views of the joint pass."""
        shared_options.threshold_of_skipping(self.skip_unsure, self.weak_pass, self.threshold)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s^CE + λ_u L_u^CE."""
        (labeled,), (weak, strong) = batch.labeled, batch.unlabeled
        skip_below = shared_options.threshold_of_skipping(self.skip_unsure, self.weak_pass, self.threshold)
        outputs = view_outputs(model, labeled, weak, strong, self.weak_pass, skip_below)
        pseudo = pseudo_label(outputs.weak_logits, self.threshold)
        labeled_ce = F.cross_entropy(outputs.labeled.logits, batch.labels)
        unlabeled_ce = masked_cross_entropy(outputs.strong.logits, pseudo.labels, pseudo.confident)
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)
