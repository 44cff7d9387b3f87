"""Supervised training on the labeled images alone, the baseline of every comparison."""

from torch import nn
from torch.nn import functional as F

from rankingmatch.methods.protocol import Batch, Context, Losses, Method, register_method


@register_method("supervised")
class Supervised(Method):
    """Eq. (2) alone: cross-entropy of the weak views of the labeled images."""

    good_for = "the error without unlabeled images"
    row = ("weak", "", "baseline")
    unlabeled_views = ()

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s^CE."""
        loss = F.cross_entropy(model(batch.labeled[0]).logits, batch.labels)
        return Losses(loss, {"labeled_ce": loss})
