"""ReMixMatch (Berthelot et al., 2020): MixMatch with aligned guesses, strong views, and a rotation loss."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.augment import quarter_turns
from rankingmatch.core.options import option
from rankingmatch.losses import soft_cross_entropy
from rankingmatch.methods.mixing import mixed_batch
from rankingmatch.methods.passes import mean_probabilities, running_statistics_kept
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task, register_method, shared
from rankingmatch.methods.targets import AVERAGED_BATCHES, align_distribution, histogram, sharpen

# Runs on these datasets are long enough for CTAugment to learn which magnitudes the labeled images can have.
LONG_RUNS = ("cifar10", "cifar100", "svhn", "stl10", "tiny-imagenet")


@register_method(
    "remixmatch",
    preset={"mu": 1, "strong": "ctaugment", "cutout": 0},
    dataset_presets={name: {"labeled_view": "strong"} for name in LONG_RUNS}
    | {"stl10": {"labeled_view": "strong", "guesses": 4}},
)
class ReMixMatch(Method):
    """Cross-entropies of mixed labeled and unlabeled rows, of an unmixed strong view, and of its rotation."""

    reference = "Berthelot 2020"
    good_for = "very few labels, if time does not matter"
    row = ("weak, strong", "sharpening", "rotation loss")
    unlabeled_weight: float = shared("unlabeled_weight", 1.5)
    strong_weight: float = option(0.5, "Weight of the loss of the first strong view, unmixed.", interval="[0, inf)")
    rotation_weight: float = option(0.5, "Weight of the rotation loss.", interval="[0, inf)")
    ramp: float = shared("ramp", 0.125)
    guesses: int = shared("guesses", 8)
    sharpening: float = shared("sharpening")
    alpha: float = shared("alpha")
    labeled_view: Literal["weak", "strong"] = option(
        "weak",
        "View of the labeled images. The authors use strong, which is the default on the paper's datasets.",
    )

    @property
    def labeled_views(self) -> tuple[str, ...]:
        """One view, weak or strong."""
        return (self.labeled_view,)

    @property
    def unlabeled_views(self) -> tuple[str, ...]:
        """A weak view, which gives the guess, and K strong ones."""
        return ("weak",) + ("strong",) * self.guesses

    def prepare(self, task: Task) -> None:
        """Create the marginal distributions for the alignment, initially uniform, and the head for rotations."""
        self.label_counts: Tensor = nn.Buffer(torch.ones(task.classes))  # one of each class before the first batch
        self.predictions: Tensor = nn.Buffer(torch.full((AVERAGED_BATCHES, task.classes), 1 / task.classes))
        # If the network returns logits only, the head takes these.
        self.rotation_head = nn.Linear(task.features or task.classes, 4)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_x + ramp · (λ_u L_u + λ_s L_s) + λ_r L_r."""
        weak, strong = batch.unlabeled[:2]
        # q = Sharpen(Normalize(q · p_data / p_model), T), with marginals that do not include this batch
        probabilities = mean_probabilities(model, [weak])
        data = self.label_counts / self.label_counts.sum()
        guess = sharpen(align_distribution(probabilities, data, self.predictions.mean(0)), self.sharpening)
        self.label_counts += histogram(batch.labels, len(data))
        self.predictions[context.step % AVERAGED_BATCHES] = probabilities.mean(0)
        labeled_logits, known, logits, targets = mixed_batch(model, batch, guess, self.alpha, context.generator)
        labeled_ce = soft_cross_entropy(labeled_logits, known)
        unlabeled_ce = soft_cross_entropy(logits, targets)
        turns = torch.randint(4, (len(strong),), generator=context.generator)
        if strong.shape[2] != strong.shape[3]:
            turns = turns // 2 * 2  # half turns keep the shape
        with running_statistics_kept(model):  # two batches: rotated images have other statistics
            unmixed, rotated = model(strong), model(quarter_turns(strong, turns))
        strong_ce = soft_cross_entropy(unmixed.logits, guess)
        rotation_ce = F.cross_entropy(self.rotation_head(rotated.features), turns.to(strong.device))
        ramped = context.ramp(self.ramp) * (self.unlabeled_weight * unlabeled_ce + self.strong_weight * strong_ce)
        total = labeled_ce + ramped + self.rotation_weight * rotation_ce
        parts = {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}
        parts |= {"strong_ce": strong_ce, "rotation_ce": rotation_ce}
        pseudo = PseudoLabels(guess.argmax(1), torch.ones(len(guess), dtype=torch.bool, device=guess.device))
        return Losses(total, parts, pseudo)
