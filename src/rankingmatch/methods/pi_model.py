"""Π-model (Laine and Aila, 2017): consistency of the predictions for two views of an image."""

from torch import nn
from torch.nn import functional as F

from rankingmatch.methods.passes import joint_logits
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, register_method, shared


@register_method("pi-model", preset={"mu": 1})
class PiModel(Method):
    """Squared difference between the softmax of two weak views; the first one is the target."""

    reference = "Laine 2017"
    good_for = "a baseline without strong augmentation"
    row = ("weak", "", "squared L2 between two views")
    unlabeled_views = ("weak", "weak")
    unlabeled_weight: float = shared("unlabeled_weight", 10.0)
    ramp: float = shared("ramp")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u(s) (1/μBC) Σ ‖q - q'‖²; q, the prediction for the first view, has no gradient."""
        labeled, first, second = joint_logits(model, *batch.labeled, *batch.unlabeled)
        labeled_ce = F.cross_entropy(labeled, batch.labels)
        difference = F.mse_loss(second.softmax(1), first.detach().softmax(1))
        total = labeled_ce + self.unlabeled_weight * context.ramp(self.ramp) * difference
        return Losses(total, {"labeled_ce": labeled_ce, "difference": difference})
