"""MixMatch (Berthelot et al., 2019): averaged and sharpened guesses as labels of unlabeled images, and MixUp."""

import torch
from torch import nn

from rankingmatch.losses import brier, soft_cross_entropy
from rankingmatch.methods.mixing import mixed_batch
from rankingmatch.methods.passes import mean_probabilities
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, register_method, shared
from rankingmatch.methods.targets import sharpen


@register_method("mixmatch", preset={"mu": 1})
class MixMatch(Method):
    """Cross-entropy on mixed labeled rows + λ_u · squared error on mixed unlabeled rows."""

    reference = "Berthelot 2019"
    good_for = "images for which only weak augmentation is known"
    row = ("weak", "sharpening", "squared L2 for unlabeled data")
    unlabeled_weight: float = shared("unlabeled_weight", 75.0)
    ramp: float = shared("ramp", 0.125)
    guesses: int = shared("guesses")
    sharpening: float = shared("sharpening")
    alpha: float = shared("alpha")

    @property
    def unlabeled_views(self) -> tuple[str, ...]:
        """K weak views."""
        return ("weak",) * self.guesses

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_x + λ_u · ramp · L_u, where q = Sharpen(1/K Σ_k softmax(view k), T) is the target of all K views."""
        guess = sharpen(mean_probabilities(model, batch.unlabeled), self.sharpening)
        labeled_logits, known, logits, targets = mixed_batch(model, batch, guess, self.alpha, context.generator)
        labeled_ce = soft_cross_entropy(labeled_logits, known)
        unlabeled_l2 = brier(logits, targets)
        total = labeled_ce + self.unlabeled_weight * context.ramp(self.ramp) * unlabeled_l2
        pseudo = PseudoLabels(guess.argmax(1), torch.ones(len(guess), dtype=torch.bool, device=guess.device))
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_l2": unlabeled_l2}, pseudo)
