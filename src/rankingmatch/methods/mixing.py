"""MixUp (Zhang et al., 2018), averages of two rows, images and targets alike; MixMatch and its successors."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.augment import quarter_turns
from rankingmatch.core.options import option
from rankingmatch.core.schedule import Annealing, tsa_threshold
from rankingmatch.losses import brier, masked_brier, soft_cross_entropy, tsa_cross_entropy
from rankingmatch.methods.passes import interleaved_logits, mean_probabilities, running_statistics_kept
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task, register_method, shared
from rankingmatch.methods.targets import AVERAGED_BATCHES, align_distribution, histogram, sharpen


def draw_mixup(count: int, alpha: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw λ = max(λ', 1 - λ') with λ' ~ Beta(α, α) for every row, and a random permutation of the rows (both (n,))."""
    # torch's Beta distribution takes no generator; NumPy's does, and gets its seed from torch's.
    seed = int(torch.randint(2**62, (), generator=generator))
    share = torch.from_numpy(np.random.default_rng(seed).beta(alpha, alpha, count))
    return torch.maximum(share, 1 - share), torch.randperm(count, generator=generator)


def mixup(rows: Tensor, share: Tensor, partner: Tensor) -> Tensor:
    """Mix rows (n, ...) of any dtype with their partners: λ_i x_i + (1 - λ_i) x_partner(i), in floating point."""
    rows = rows if rows.is_floating_point() else rows.float()
    share = share.to(rows.dtype).to(rows.device).view(-1, *[1] * (rows.ndim - 1))
    return share * rows + (1 - share) * rows[partner.to(rows.device)]


def mixed_batch(
    model: nn.Module, batch: Batch, guess: Tensor, alpha: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mix all rows of a batch with one another and pass them through the network.

    The batch has one labeled view and any number of unlabeled views; the guess (μB, classes) is the target of each.
    Returns logits and mixed targets of the labeled rows (B, classes), and those of the unlabeled ones, view by view.
    """
    (labeled,), views = batch.labeled, len(batch.unlabeled)
    known = F.one_hot(batch.labels, guess.shape[1]).to(guess.dtype)
    images = torch.cat([labeled, *batch.unlabeled])
    draw = draw_mixup(len(images), alpha, generator)
    targets = mixup(torch.cat([known, *[guess] * views]), *draw)
    logits = interleaved_logits(model, mixup(images, *draw), views + 1)
    count = len(labeled)
    return logits[:count], targets[:count], logits[count:], targets[count:]


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


@register_method("realmix", preset={"mu": 1})
class RealMix(Method):
    """Annealed cross-entropy on mixed labeled rows + λ_u · masked squared error on mixed unlabeled rows."""

    reference = "Nair 2019"
    good_for = "unlabeled images of other classes"
    row = ("weak, strong", "sharpening, threshold", "training signal annealing (TSA)")
    unlabeled_weight: float = shared("unlabeled_weight", 75.0)
    ramp: float = shared("ramp", 0.125)
    guesses: int = shared("guesses")
    strong_views: int = option(1, "Strong views trained on the label guessed from the weak ones.", interval="[0, 64]")
    sharpening: float = shared("sharpening")
    alpha: float = shared("alpha")
    tsa: Annealing = shared("tsa", "linear")
    dropped: float = option(
        0.1, "Fraction of mixed unlabeled images to ignore: the least confident.", interval="[0, 1)"
    )

    @property
    def unlabeled_views(self) -> tuple[str, ...]:
        """K weak views, which give the guess, and the strong ones."""
        return ("weak",) * self.guesses + ("strong",) * self.strong_views

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_x^TSA + λ_u · ramp · L_u; q = Sharpen(1/K Σ_k softmax(weak view k), T) is the target of all views."""
        guess = sharpen(mean_probabilities(model, batch.unlabeled[: self.guesses]), self.sharpening)
        labeled_logits, known, logits, targets = mixed_batch(model, batch, guess, self.alpha, context.generator)
        threshold = tsa_threshold(self.tsa, context.step, context.steps, guess.shape[1])
        labeled_ce = tsa_cross_entropy(labeled_logits, batch.labels, threshold, known)
        # All rows but the ⌊dropped · n⌋ whose largest probability is smallest.
        rank = logits.detach().softmax(1).amax(1).argsort(stable=True).argsort()
        kept = rank >= int(self.dropped * len(rank))
        unlabeled_l2 = masked_brier(logits, targets, kept)
        total = labeled_ce + self.unlabeled_weight * context.ramp(self.ramp) * unlabeled_l2
        # An image counts as confident if one of its rows is kept.
        confident = kept.unflatten(0, (len(batch.unlabeled), -1)).any(0)
        parts = {"labeled_ce": labeled_ce, "unlabeled_l2": unlabeled_l2}
        return Losses(total, parts, PseudoLabels(guess.argmax(1), confident))


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
