"""ReMixMatch (Berthelot et al., 2020): MixMatch with aligned guesses, strong views, and a rotation to be recognised."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.augment import quarter_turns
from rankingmatch.core.options import option
from rankingmatch.core.schedule import linear_ramp
from rankingmatch.losses import soft_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.mixing import draw_mixup, mixup
from rankingmatch.methods.passes import interleaved_logits, mean_probabilities, running_statistics_kept
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task
from rankingmatch.methods.targets import align_distribution, sharpen

REMEMBERED = 128  # batches whose mean prediction is what the model is said to believe


@dataclass(eq=False)
class ReMixMatch(Method):
    """Cross-entropies of mixed labeled and unlabeled rows, of an unmixed strong view, and of its rotation."""

    unlabeled_weight: float = shared_options.unlabeled_weight(1.5)
    strong_weight: float = option(0.5, "Weight of the loss of the first strong view, unmixed.", interval="[0, inf)")
    rotation_weight: float = option(0.5, "Weight of the loss of recognising rotations.", interval="[0, inf)")
    ramp: float = shared_options.ramp(0.125)
    guesses: int = shared_options.guesses(8)
    sharpening: float = shared_options.sharpening()
    alpha: float = shared_options.alpha()

    @property
    def unlabeled_views(self) -> tuple[str, ...]:
        """A weak view, which guesses, and K strong ones."""
        return ("weak",) + ("strong",) * self.guesses

    def prepare(self, task: Task) -> None:
        """The marginals that guesses are aligned by, uniform at first, and the head that recognises rotations."""
        self.label_counts: Tensor
        self.predictions: Tensor
        self.register_buffer("label_counts", torch.ones(task.classes))  # one of each class before the first batch
        self.register_buffer("predictions", torch.full((REMEMBERED, task.classes), 1 / task.classes))
        # A network that gives logits only has its rotations recognised from these.
        self.rotation_head = nn.Linear(task.features or task.classes, 4)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_x + ramp · (λ_u L_u + λ_s L_s) + λ_r L_r."""
        (labeled,), labels = batch.labeled, batch.labels
        weak, first = batch.unlabeled[:2]
        probabilities = mean_probabilities(model, [weak])
        known = F.one_hot(labels, probabilities.shape[1]).to(probabilities.dtype)
        guess = self._guess(probabilities, known, context.step)
        # W = all rows of the step, weak views included; every row is mixed with another one of W.
        images = torch.cat([labeled, *batch.unlabeled])
        draw = draw_mixup(len(images), self.alpha, context.generator)
        targets = mixup(torch.cat([known, *[guess] * len(batch.unlabeled)]), draw)
        logits = interleaved_logits(model, mixup(images, draw), len(batch.unlabeled) + 1)
        labeled_ce = soft_cross_entropy(logits[: len(labels)], targets[: len(labels)])
        unlabeled_ce = soft_cross_entropy(logits[len(labels) :], targets[len(labels) :])
        turns = _draw_turns(first, context.generator)
        with running_statistics_kept(model):
            output = model(torch.cat([first, quarter_turns(first, turns)]))
        strong_ce = soft_cross_entropy(output.logits[: len(first)], guess)
        rotation_ce = F.cross_entropy(self.rotation_head(output.features[len(first) :]), turns.to(first.device))
        ramp = linear_ramp(context.step, context.steps, self.ramp)
        total = labeled_ce + ramp * (self.unlabeled_weight * unlabeled_ce + self.strong_weight * strong_ce)
        parts = {
            "labeled_ce": labeled_ce,
            "unlabeled_ce": unlabeled_ce,
            "strong_ce": strong_ce,
            "rotation_ce": rotation_ce,
        }
        pseudo = PseudoLabels(guess.argmax(1), torch.ones(len(guess), dtype=torch.bool, device=guess.device))
        return Losses(total + self.rotation_weight * rotation_ce, parts, pseudo)

    @torch.no_grad()
    def _guess(self, probabilities: Tensor, known: Tensor, step: int) -> Tensor:
        """q = Sharpen(Normalize(q · p_data / p_model), T); then the marginals take in this batch."""
        data, model = self.label_counts / self.label_counts.sum(), self.predictions.mean(0)
        guess = sharpen(align_distribution(probabilities, data, model), self.sharpening)
        self.label_counts += known.sum(0)
        self.predictions[step % REMEMBERED] = probabilities.mean(0)
        return guess


def _draw_turns(images: Tensor, generator: torch.Generator) -> Tensor:
    """(n,) quarter turns, 0 to 3, on the CPU; oblong images can only be turned by 0 or 2 of them."""
    turns = torch.randint(4, (len(images),), generator=generator)
    return turns if images.shape[2] == images.shape[3] else turns // 2 * 2
