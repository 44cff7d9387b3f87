"""Weak targets for strong views: UDA, FixMatch, and methods that choose or weight pseudo-labels otherwise."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option
from rankingmatch.core.schedule import Annealing, tsa_threshold
from rankingmatch.losses import kl_divergence, masked_cross_entropy, soft_cross_entropy, tsa_cross_entropy
from rankingmatch.methods.passes import ViewOutputs, joint_logits, running_statistics_kept, three_views
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task, register_method, shared
from rankingmatch.methods.rebalancing import Rebalanced
from rankingmatch.methods.targets import (
    AVERAGED_BATCHES,
    LearnedLabels,
    align_distribution,
    decay_at_length,
    histogram,
    pseudo_label,
    sharpen,
    update_average,
)


def fixmatch_losses(
    outputs: ViewOutputs,
    labels: Tensor,
    pseudo: PseudoLabels,
    unlabeled_weight: float,
    row_weights: Tensor | None = None,
) -> Losses:
    """L = (1/B) Σ H(label, labeled view) + λ_u (1/μB) Σ w H(pseudo-label, strong view).

    The weights w (μB,) are 1 for confident rows and 0 for others unless `row_weights` are given.
    """
    labeled_ce = F.cross_entropy(outputs.labeled_logits, labels)
    weights = pseudo.confident if row_weights is None else row_weights
    unlabeled_ce = masked_cross_entropy(outputs.strong_logits, pseudo.labels, weights)
    total = labeled_ce + unlabeled_weight * unlabeled_ce
    return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)


@register_method("uda")
class UDA(Rebalanced):
    """KL divergence between confident, sharpened weak views and strong views; optional signal annealing (TSA)."""

    reference = "Xie 2020"
    good_for = "soft targets at a lower threshold"
    row = ("weak, strong", "sharpening, threshold", "optional signal annealing (TSA)")
    threshold: float = shared("threshold", 0.8)
    sharpening: float = shared("sharpening", 0.4)
    unlabeled_weight: float = shared("unlabeled_weight")
    tsa: Annealing = shared("tsa")

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(confident) KL(sharpen(q) ‖ strong view)."""
        pseudo = pseudo_label(outputs.weak.logits, self.threshold)
        targets = sharpen(outputs.weak.logits.softmax(1), self.sharpening)
        annealed = tsa_threshold(self.tsa, context.step, context.steps, targets.shape[1])
        labeled_ce = tsa_cross_entropy(outputs.labeled_logits, batch.labels, annealed)
        divergence = (kl_divergence(outputs.strong_logits, targets) * pseudo.confident).mean()
        total = labeled_ce + self.unlabeled_weight * divergence
        return Losses(total, {"labeled_ce": labeled_ce, "divergence": divergence}, pseudo)


@register_method("fixmatch-cta", note="CTAugment", preset={"strong": "ctaugment"})
@register_method("fixmatch-ra")
class FixMatch(Rebalanced):
    """Eq. (2) + λ_u · Eq. (3)."""

    reference = "Sohn 2020"
    good_for = "a fast, well-known baseline"
    row = ("weak, strong", "threshold", "RandAugment")
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight")

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """L = L_s^CE + λ_u L_u^CE."""
        pseudo = pseudo_label(outputs.weak.logits, self.threshold)
        return fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)


@register_method("flexmatch")
class FlexMatch(Rebalanced):
    """FixMatch's losses with thresholds per class, from the last confident labels of all unlabeled images."""

    reference = "Zhang 2021"
    good_for = "classes that differ in difficulty"
    row = ("weak, strong", "threshold per class", "learned counts")
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight")

    def prepare(self, task: Task) -> None:
        """Create the memory of the last confident label of every unlabeled image."""
        super().prepare(task)
        self.learned = LearnedLabels(task)

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(max(q) ≥ T(q̂)) H(q̂, strong view)."""
        # The thresholds depend on the earlier steps only; this batch counts from the next step on.
        pseudo = pseudo_label(outputs.weak.logits, self.learned.thresholds(self.threshold))
        self.learned.update(batch.rows, pseudo_label(outputs.weak.logits, self.threshold))
        return fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)


@register_method("freematch", dataset_presets={"svhn": {"lowest_threshold": 0.9, "highest_threshold": 0.95}})
class FreeMatch(Rebalanced):
    """FixMatch's losses with self-adaptive thresholds, plus self-adaptive fairness."""

    reference = "Wang 2023"
    good_for = "very few labels; no threshold to choose"
    row = ("weak, strong", "adaptive threshold per class", "fairness loss")
    unlabeled_weight: float = shared("unlabeled_weight")
    fairness_weight: float = option(0.01, "w_f: weight of the fairness loss.", interval="[0, inf)")
    lowest_threshold: float = option(0.0, "Lower bound of the global threshold τ.", interval="[0, 1]")
    highest_threshold: float = option(1.0, "Upper bound of the global threshold τ.", interval="[0, 1]")
    statistics_decay: float | None = shared("statistics_decay")

    def prepare(self, task: Task) -> None:
        """Create moving averages over weak views, initially 1/C: τ of max(q), p̃ of q, h̃ of the histogram of q̂."""
        if self.lowest_threshold > self.highest_threshold:
            raise ConfigError(
                f"{setting('lowest_threshold')} is {self.lowest_threshold}, above {setting('highest_threshold')}, "
                f"which is {self.highest_threshold}; lower it"
            )
        super().prepare(task)
        self.confidence: Tensor = nn.Buffer(torch.tensor(1 / task.classes))
        self.probability: Tensor = nn.Buffer(torch.full((task.classes,), 1 / task.classes))
        self.frequency: Tensor = nn.Buffer(torch.full((task.classes,), 1 / task.classes))

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(max(q) ≥ τ(q̂)) H(q̂, strong view) + w_f L_f."""
        probabilities = outputs.weak.logits.softmax(1)
        (confidence, label), (count, classes) = probabilities.max(1), probabilities.shape
        decay = decay_at_length(self.statistics_decay, context.steps)
        update_average(self.confidence, confidence.mean(), decay)
        self.confidence.clamp_(self.lowest_threshold, self.highest_threshold)
        update_average(self.probability, probabilities.mean(0), decay)
        update_average(self.frequency, histogram(label, classes) / count, decay)
        # τ(c) = p̃(c) / max p̃ · τ, including this batch.
        thresholds = self.probability / self.probability.max() * self.confidence
        pseudo = pseudo_label(outputs.weak.logits, thresholds)
        losses = fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)
        fairness = fairness_loss(outputs.strong.logits, pseudo.confident, self.probability, self.frequency)
        return Losses(losses.total + self.fairness_weight * fairness, {**losses.parts, "fairness": fairness}, pseudo)


def fairness_loss(strong_logits: Tensor, confident: Tensor, probability: Tensor, frequency: Tensor) -> Tensor:
    """L_f = Σ_c a_c ln b_c, with a = SumNorm(p̃ / h̃) and b = SumNorm(p̄ / h̄); 0 if no row is confident.

    p̄ is the mean prediction for the confident strong views and h̄ the histogram of their argmax. A class that is never
    predicted for them has no ratio p̄ / h̄; its term is left out.
    """
    predictions = strong_logits.softmax(1)
    mean = (predictions * confident[:, None]).sum(0)
    count = histogram(predictions.argmax(1), predictions.shape[1], confident)
    present = count > 0
    # p̄ and h̄ would be divided by the same number of rows, which cancels in SumNorm.
    ratio = torch.where(present, mean, 0) / count.clamp(min=1)
    # The total is 0 only if no class is present.
    share = ratio / torch.where(present.any(), ratio.sum(), 1)
    # h̃ of a class that is never predicted goes to 0: keep its ratio finite.
    target = probability / frequency.clamp(min=1e-12)
    return (target / target.sum() * torch.where(present, share, 1).log()).sum()


@register_method("softmatch")
class SoftMatch(Rebalanced):
    """FixMatch's losses, weighted by a truncated Gaussian of the confidence, with uniform alignment."""

    reference = "Chen 2023"
    good_for = "short runs and fine-tuning: no image is dropped"
    row = ("weak, strong", "weight, alignment", "no threshold")
    unlabeled_weight: float = shared("unlabeled_weight")
    sigmas: float = option(2.0, "n: the standard deviation of the Gaussian is σ / n.", interval="(0, inf)")
    uniform_alignment: bool = option(True, "Divide predictions by their average before taking confidences.")
    statistics_decay: float | None = shared("statistics_decay")

    def prepare(self, task: Task) -> None:
        """Create moving averages over weak views: mean μ and variance σ² of the confidence, and the prediction p̃.

        p̃ starts as the mean prediction for the first batch; until then it is 0.
        """
        super().prepare(task)
        self.mean: Tensor = nn.Buffer(torch.tensor(1 / task.classes))
        self.variance: Tensor = nn.Buffer(torch.tensor(1.0))
        self.probability: Tensor = nn.Buffer(torch.zeros(task.classes))

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ λ(c) H(q̂, strong view), where c is the confidence after alignment."""
        probabilities = outputs.weak.logits.softmax(1)
        count, mean, aligned = len(probabilities), probabilities.mean(0), probabilities
        decay = decay_at_length(self.statistics_decay, context.steps)
        self.probability.copy_(torch.where(self.probability.any(), self.probability, mean))
        update_average(self.probability, mean, decay)
        if self.uniform_alignment:
            # UA(q) = Normalize(q · (1/C) / p̃). The factor 1/C cancels. A class that is never predicted has p̃ near 0:
            # keep its ratio finite.
            ratio = probabilities / self.probability.clamp(min=1e-6)
            aligned = ratio / ratio.sum(1, keepdim=True)
        confidence = aligned.amax(1)
        update_average(self.mean, confidence.mean(), decay)
        # The unbiased variance; that of a single row is 0.
        update_average(self.variance, confidence.var(correction=0) * count / max(count - 1, 1), decay)
        # λ(c) = exp(-max(μ - c, 0)² / (2σ²/n²)): 1 at the mean and above.
        below = (self.mean - confidence).clamp(min=0)
        weights = (-below.square() / (2 * (self.variance / self.sigmas**2).clamp(min=1e-12))).exp()
        # All rows are used; those reported as confident have the full weight.
        pseudo = PseudoLabels(probabilities.argmax(1), confidence >= self.mean)
        return fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight, weights)


@register_method("adamatch", preset={"mu": 3})
class AdaMatch(Method):
    """Cross-entropies of weak and strong labeled views, and of confident strong views with aligned targets."""

    reference = "Berthelot 2022"
    good_for = "labeled and unlabeled images that differ in distribution"
    row = ("weak, strong", "alignment, relative threshold", "labeled images in two passes")
    labeled_views = ("weak", "strong")
    relative_threshold: float = option(
        0.9,
        "τ: use a pseudo-label if its probability is at least this fraction of the mean confidence on labeled images.",
        interval="(0, 1]",
    )
    unlabeled_weight: float = shared("unlabeled_weight")

    def prepare(self, task: Task) -> None:
        """Create the mean predictions for the weak views of recent batches, initially uniform."""
        self.labeled: Tensor = nn.Buffer(torch.full((AVERAGED_BATCHES, task.classes), 1 / task.classes))
        self.unlabeled: Tensor = nn.Buffer(torch.full((AVERAGED_BATCHES, task.classes), 1 / task.classes))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = (1/B) Σ [H(label, weak) + H(label, strong)] + λ_u μ(s) (1/μB) Σ 1(max(q̃) ≥ c_τ) H(q̃, strong view)."""
        # Logits of labeled images are at random points between those of two passes, which differ in BatchNorm's batch
        # statistics: of labeled views only, and of all views.
        labeled = torch.cat(batch.labeled)
        with running_statistics_kept(model):
            alone: Tensor = model(labeled).logits
        together, weak, strong = joint_logits(model, labeled, *batch.unlabeled)
        point = torch.rand(alone.shape, generator=context.generator).to(alone)
        labeled_weak, labeled_strong = torch.lerp(together, alone, point).split(len(batch.labels))
        # q̃ = Normalize(q · E[q_labeled] / E[q]), with means that include this batch
        known, predicted = labeled_weak.detach().softmax(1), weak.detach().softmax(1)
        self.labeled[context.step % AVERAGED_BATCHES] = known.mean(0)
        self.unlabeled[context.step % AVERAGED_BATCHES] = predicted.mean(0)
        targets = align_distribution(predicted, self.labeled.mean(0), self.unlabeled.mean(0))
        # c_τ = τ · mean confidence of the labeled weak views
        confident = targets.amax(1) >= self.relative_threshold * known.amax(1).mean()
        labeled_ce = F.cross_entropy(labeled_weak, batch.labels) + F.cross_entropy(labeled_strong, batch.labels)
        unlabeled_ce = soft_cross_entropy(strong, targets * confident[:, None])
        # μ(s) = 1/2 - cos(min(π, 2πs/S)) / 2 rises from 0 to 1 over the first half of training.
        rising = 0.5 - math.cos(min(math.pi, 2 * math.pi * context.step / context.steps)) / 2
        total = labeled_ce + self.unlabeled_weight * rising * unlabeled_ce
        pseudo = PseudoLabels(targets.argmax(1), confident)
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)


@register_method("dash")
class Dash(Method):
    """FixMatch's losses for the images whose loss under their own pseudo-label is at most ρ_t."""

    reference = "Xu 2021"
    good_for = "a threshold that becomes stricter during training"
    row = ("weak, strong", "sharpening, threshold on the loss", "falling threshold")
    unlabeled_weight: float = shared("unlabeled_weight")
    sharpening: float = shared("sharpening")
    loss_decay: float = option(1.27, "γ: ρ is divided by this every 10/1024 of training.", interval="(1, inf)")
    least_loss: float = option(0.05, "ρ_min: smallest ρ. Pseudo-labels are hard from there on.", interval="(0, inf)")
    warm_up: float = option(
        1 / 512,
        "Fraction of training on labeled images only. Their loss then sets ρ, the largest loss of a used pseudo-label.",
        interval="[0, 1)",
    )

    def prepare(self, task: Task) -> None:
        """Create ρ̂, the mean loss of labeled images after the warm-up."""
        self.labeled_loss: Tensor = nn.Buffer(torch.tensor(0.0))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(H(t, weak view) ≤ ρ_t) H(t, strong view)."""
        outputs = three_views(model, batch)
        labeled_ce = F.cross_entropy(outputs.labeled.logits, batch.labels)
        after = context.step - int(self.warm_up * context.steps)  # steps since the warm-up
        if after == 0:
            self.labeled_loss.copy_(labeled_ce.detach())
        # ρ = max(C γ^-period ρ̂, ρ_min), C = 1.0001; it falls every 10 of 1024 epochs.
        period = int(1024 / 10 * after / context.steps)
        threshold = (1.0001 * self.loss_decay**-period * self.labeled_loss).clamp(min=self.least_loss)
        # t: the sharpened predictions; their argmax as one-hot rows once the threshold has reached ρ_min
        soft = outputs.weak.logits.softmax(1)
        hard = F.one_hot(soft.argmax(1), soft.shape[1]).to(soft)
        targets = torch.where(threshold <= self.least_loss, hard, sharpen(soft, self.sharpening))
        own = -(targets * outputs.weak.logits.log_softmax(1)).sum(1)
        used = (own <= threshold) & (after >= 0)
        unlabeled_ce = soft_cross_entropy(outputs.strong.logits, targets * used[:, None])
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce
        pseudo = PseudoLabels(targets.argmax(1), used)
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)


@register_method("defixmatch")
class DeFixMatch(Method):
    """The supervised loss, plus FixMatch's loss on unlabeled images, minus FixMatch's loss on labeled images."""

    reference = "Schmutz 2023"
    good_for = "many labels: safe if pseudo-labels are often wrong"
    row = ("weak, strong", "threshold", "unbiased unlabeled loss")
    labeled_views = ("weak", "strong")
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight", 0.5)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = (1/2B) Σ [H(y, weak) + H(y, strong)] + λ [(1/μB) Σ_u h - (1/B) Σ_l h], h = 1(confident) H(q̂, strong)."""
        labeled_weak, labeled_strong, weak, strong = joint_logits(model, *batch.labeled, *batch.unlabeled)
        labeled_ce = (F.cross_entropy(labeled_weak, batch.labels) + F.cross_entropy(labeled_strong, batch.labels)) / 2
        pseudo = pseudo_label(weak.detach(), self.threshold)
        of_labeled = pseudo_label(labeled_weak.detach(), self.threshold)
        unlabeled_ce = masked_cross_entropy(strong, pseudo.labels, pseudo.confident)
        # In expectation, the loss on labeled images equals the one on unlabeled images: their difference adds no bias.
        debiasing_ce = masked_cross_entropy(labeled_strong, of_labeled.labels, of_labeled.confident)
        total = labeled_ce + self.unlabeled_weight * (unlabeled_ce - debiasing_ce)
        parts = {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce, "debiasing_ce": debiasing_ce}
        return Losses(total, parts, pseudo)


@register_method("refixmatch")
class ReFixMatch(Method):
    """FixMatch's losses, and a KL divergence to the sharpened prediction where the pseudo-label is not confident."""

    reference = "Nguyen 2023"
    good_for = "using images below the threshold, too"
    row = ("weak, strong", "threshold, sharpening", "soft targets below the threshold")
    threshold: float = shared("threshold")
    sharpening: float = shared("sharpening")
    unlabeled_weight: float = shared("unlabeled_weight")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ [1(confident) H(q̂, strong) + 1(not confident) KL(sharpen(q) ‖ strong)]."""
        outputs = three_views(model, batch)
        pseudo = pseudo_label(outputs.weak.logits, self.threshold)
        losses = fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)
        targets = sharpen(outputs.weak.logits.softmax(1), self.sharpening)
        divergence = (kl_divergence(outputs.strong.logits, targets) * ~pseudo.confident).mean()
        total = losses.total + self.unlabeled_weight * divergence
        return Losses(total, {**losses.parts, "divergence": divergence}, pseudo)


@register_method("sequencematch")
class SequenceMatch(Method):
    """FlexMatch's losses, and divergences from weak to medium, from medium to strong, and from weak to strong views."""

    reference = "Nguyen 2023"
    good_for = "strong views that are too far from weak ones"
    row = ("weak, medium, strong", "threshold per class", "a view in between")
    unlabeled_views = ("weak", "medium", "strong")
    threshold: float = shared("threshold")
    sharpening: float = shared("sharpening")
    unlabeled_weight: float = shared("unlabeled_weight")

    def prepare(self, task: Task) -> None:
        """Create the memory of the last confident label of every unlabeled image."""
        self.learned = LearnedLabels(task)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u [(1/μB) Σ 1(max(q) ≥ T(q̂)) H(q̂, strong view) + the sum of D over the pairs of views]."""
        labeled, weak, medium, strong = joint_logits(model, *batch.labeled, *batch.unlabeled)
        # The thresholds depend on the earlier steps only; this batch counts from the next step on.
        pseudo = pseudo_label(weak.detach(), self.learned.thresholds(self.threshold))
        self.learned.update(batch.rows, pseudo_label(weak.detach(), self.threshold))
        labeled_ce = F.cross_entropy(labeled, batch.labels)
        unlabeled_ce = masked_cross_entropy(strong, pseudo.labels, pseudo.confident)
        # D = (1/μB) Σ 1(max(q) ≥ τ) KL(sharpen(q) ‖ prediction), where q is the prediction for the milder view
        divergences = []
        for milder, logits in ((weak, medium), (medium, strong), (weak, strong)):
            q = milder.detach().softmax(1)
            confident = q.amax(1) >= self.threshold
            divergences.append((kl_divergence(logits, sharpen(q, self.sharpening)) * confident).mean())
        divergence = torch.stack(divergences).sum()
        total = labeled_ce + self.unlabeled_weight * (unlabeled_ce + divergence)
        parts = {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce, "divergence": divergence}
        return Losses(total, parts, pseudo)
