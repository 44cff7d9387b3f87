"""RealMix (Nair et al., 2019): MixMatch without easy labels and doubtful guesses, with strong views in the pool."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from rankingmatch.core.options import option
from rankingmatch.core.schedule import Annealing, linear_ramp, tsa_threshold
from rankingmatch.losses import masked_brier, tsa_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.mixing import draw_mixup, mixup
from rankingmatch.methods.passes import interleaved_logits, mean_probabilities
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels
from rankingmatch.methods.targets import most_confident, sharpen


@dataclass(eq=False)
class RealMix(Method):
    """Annealed cross-entropy on mixed labeled rows + λ_u · masked squared error on mixed unlabeled rows."""

    unlabeled_weight: float = shared_options.unlabeled_weight(75.0)
    ramp: float = shared_options.ramp(0.125)
    guesses: int = shared_options.guesses()
    strong_views: int = option(
        1, "Strong views that are trained towards the guess of the weak ones.", interval="[0, 64]"
    )
    sharpening: float = shared_options.sharpening()
    alpha: float = shared_options.alpha()
    tsa: Annealing = shared_options.tsa("linear")
    dropped: float = option(
        0.1, "Share of the unlabeled images of a batch, the least confident, that are left out.", interval="[0, 1)"
    )

    @property
    def unlabeled_views(self) -> tuple[str, ...]:
        """K weak views, which guess, and the strong ones."""
        return ("weak",) * self.guesses + ("strong",) * self.strong_views

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_x^TSA + λ_u · ramp · L_u."""
        (labeled,), labels = batch.labeled, batch.labels
        views = len(batch.unlabeled)
        # q = Sharpen(1/K Σ_k softmax(weak view k), T): the target of all views.
        probabilities = mean_probabilities(model, batch.unlabeled[: self.guesses])
        guess = sharpen(probabilities, self.sharpening)
        kept = most_confident(probabilities, self.dropped)
        known = F.one_hot(labels, guess.shape[1]).to(guess.dtype)
        images = torch.cat([labeled, *batch.unlabeled])
        draw = draw_mixup(len(images), self.alpha, context.generator)
        targets = mixup(torch.cat([known, *[guess] * views]), draw)
        logits = interleaved_logits(model, mixup(images, draw), views + 1)
        threshold = tsa_threshold(self.tsa, context.step, context.steps, guess.shape[1])
        labeled_ce = tsa_cross_entropy(logits[: len(labels)], labels, threshold, targets[: len(labels)])
        unlabeled_l2 = masked_brier(logits[len(labels) :], targets[len(labels) :], kept.repeat(views))
        weight = self.unlabeled_weight * linear_ramp(context.step, context.steps, self.ramp)
        parts = {"labeled_ce": labeled_ce, "unlabeled_l2": unlabeled_l2}
        return Losses(labeled_ce + weight * unlabeled_l2, parts, PseudoLabels(guess.argmax(1), kept))
