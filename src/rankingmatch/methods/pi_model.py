"""Π-model (Laine and Aila, 2017): consistency of the predictions for two views of an image."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.nn import functional as F

from rankingmatch.core.schedule import linear_ramp
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import joint_logits
from rankingmatch.methods.protocol import Batch, Context, Losses, Method

__all__ = ["PiModel"]


@dataclass(eq=False)
class PiModel(Method):
    """Squared difference between the softmax of two weak views; the first one is the target."""

    unlabeled_views: ClassVar[tuple[str, ...]] = ("weak", "weak")
    unlabeled_weight: float = shared_options.unlabeled_weight(10.0)
    ramp: float = shared_options.ramp(0.4)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u(s) (1/μBC) Σ ‖q - q'‖²; q, the prediction for the first view, has no gradient."""
        (labeled,), (first, second) = batch.labeled, batch.unlabeled
        labeled_logits, first_logits, second_logits = joint_logits(model, labeled, first, second)
        targets = first_logits.detach().softmax(1)
        labeled_ce = F.cross_entropy(labeled_logits, batch.labels)
        difference = F.mse_loss(second_logits.softmax(1), targets)
        weight = self.unlabeled_weight * linear_ramp(context.step, context.steps, self.ramp)
        total = labeled_ce + weight * difference
        return Losses(total, {"labeled_ce": labeled_ce, "difference": difference})
