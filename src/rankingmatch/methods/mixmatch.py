"""MixMatch (Berthelot et al., 2019): averaged and sharpened guesses as labels of unlabeled images, and MixUp."""

from dataclasses import dataclass

import torch
from torch import nn

from rankingmatch.core.schedule import linear_ramp
from rankingmatch.losses import brier, soft_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.mixing import mixed_batch
from rankingmatch.methods.passes import mean_probabilities
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels
from rankingmatch.methods.targets import sharpen

__all__ = ["MixMatch"]


@dataclass(eq=False)
class MixMatch(Method):
    """Cross-entropy on mixed labeled rows + λ_u · squared error on mixed unlabeled rows."""

    unlabeled_weight: float = shared_options.unlabeled_weight(75.0)
    ramp: float = shared_options.ramp(0.125)
    guesses: int = shared_options.guesses()
    sharpening: float = shared_options.sharpening()
    alpha: float = shared_options.alpha()

    @property
    def unlabeled_views(self) -> tuple[str, ...]:
        """K weak views."""
        return ("weak",) * self.guesses

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_x + λ_u · ramp · L_u."""
        # q = Sharpen(1/K Σ_k softmax(view k), T): the target of all K views.
        guess = sharpen(mean_probabilities(model, batch.unlabeled), self.sharpening)
        mixed = mixed_batch(model, batch, guess, self.alpha, context.generator)
        labeled_ce = soft_cross_entropy(mixed.labeled_logits, mixed.labeled_targets)
        unlabeled_l2 = brier(mixed.logits, mixed.targets)
        weight = self.unlabeled_weight * linear_ramp(context.step, context.steps, self.ramp)
        pseudo = PseudoLabels(guess.argmax(1), torch.ones(len(guess), dtype=torch.bool, device=guess.device))
        parts = {"labeled_ce": labeled_ce, "unlabeled_l2": unlabeled_l2}
        return Losses(labeled_ce + weight * unlabeled_l2, parts, pseudo)
