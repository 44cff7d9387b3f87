"""MixMatch (Berthelot et al., 2019): guessed labels, averaged and sharpened, in a pool whose rows are mixed."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from rankingmatch.core.schedule import linear_ramp
from rankingmatch.losses import brier, soft_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.mixing import draw_mixup, mixup
from rankingmatch.methods.passes import interleaved_logits, mean_probabilities
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels
from rankingmatch.methods.targets import sharpen


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
        (labeled,), labels = batch.labeled, batch.labels
        # q = Sharpen(1/K Σ_k softmax(view k), T): the target of all K views.
        guess = sharpen(mean_probabilities(model, batch.unlabeled), self.sharpening)
        known = F.one_hot(labels, guess.shape[1]).to(guess.dtype)
        # W = all rows of the step; every row is mixed with another one of W.
        images = torch.cat([labeled, *batch.unlabeled])
        targets = torch.cat([known, *[guess] * self.guesses])
        draw = draw_mixup(len(images), self.alpha, context.generator)
        targets = mixup(targets, draw)
        logits = interleaved_logits(model, mixup(images, draw), self.guesses + 1)
        labeled_ce = soft_cross_entropy(logits[: len(labels)], targets[: len(labels)])
        unlabeled_l2 = brier(logits[len(labels) :], targets[len(labels) :])
        weight = self.unlabeled_weight * linear_ramp(context.step, context.steps, self.ramp)
        pseudo = PseudoLabels(guess.argmax(1), torch.ones(len(guess), dtype=torch.bool, device=guess.device))
        parts = {"labeled_ce": labeled_ce, "unlabeled_l2": unlabeled_l2}
        return Losses(labeled_ce + weight * unlabeled_l2, parts, pseudo)
