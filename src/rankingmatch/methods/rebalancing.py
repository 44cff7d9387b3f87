"""Remedies for classes of different sizes: each changes the outputs from which a method computes its losses.

`Rebalanced` applies one around a method's `forward`. To add one: a subclass of `Remedy`, its name in `Rebalance`, and
one line in `REMEDIES`.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option
from rankingmatch.core.schedule import statistics_momentum
from rankingmatch.losses import soft_cross_entropy
from rankingmatch.methods.passes import ViewOutputs, running_statistics_kept, three_views
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task
from rankingmatch.methods.targets import (
    AVERAGED_BATCHES,
    align_distribution,
    histogram,
    last_occurrence,
    safe_log,
    update_average,
)
from rankingmatch.networks import Output

Rebalance = Literal["none", "alignment", "logit-adjustment", "debiaspl", "abc", "darp", "daso", "crest"]


class Remedy(nn.Module):
    """Base class of all remedies; itself, it changes nothing. What it keeps between steps are buffers."""

    usual_strength: float | None = None  # that of its paper; None if it has none
    needs_features = False

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__()
        self.strength = strength

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Change the outputs of a batch: pseudo-labels come from the logits of `weak`."""
        return outputs


def label_distribution(task: Task) -> Tensor:
    """π (classes,): the share of each class among the labels; uniform if their numbers are not known.

    A class without labels counts as one label, so that logarithms are finite.
    """
    counts = torch.tensor(task.label_counts or (1,) * task.classes, dtype=torch.get_default_dtype()).clamp(min=1)
    return counts / counts.sum()


def remember(memory: Tensor, rows: Tensor, values: Tensor) -> None:
    """Store the values (n, …) of a batch at rows (n,) of the memory; if a row occurs twice, the later one counts."""
    memory[rows] = values[last_occurrence(rows)].to(memory.dtype)


def with_weak_logits(outputs: ViewOutputs, logits: Tensor) -> ViewOutputs:
    """The outputs with other logits for pseudo-labels."""
    return outputs._replace(weak=Output(logits, outputs.weak.features))


class DistributionAlignment(Remedy):
    """Distribution alignment (Berthelot et al., 2020): pseudo-labels that are distributed as the labels are.

    q ← Normalize(q · π / q̄), with the mean prediction q̄ over the 128 batches before this one.
    """

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        self.wanted: Tensor = nn.Buffer(label_distribution(task), persistent=False)
        self.predictions: Tensor = nn.Buffer(torch.full((AVERAGED_BATCHES, task.classes), 1 / task.classes))

    @torch.no_grad()
    def aligned(self, probabilities: Tensor, step: int, exponent: float = 1.0) -> Tensor:
        """Align probabilities (n, classes) with π^t, normalized, for the exponent t; they count in later steps."""
        wanted = self.wanted**exponent
        aligned = align_distribution(probabilities, wanted / wanted.sum(), self.predictions.mean(0))
        self.predictions[step % len(self.predictions)] = probabilities.mean(0)
        return aligned

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Align the predictions for the weak views."""
        return with_weak_logits(outputs, safe_log(self.aligned(outputs.weak.logits.softmax(1), context.step)))


class LogitAdjustment(Remedy):
    """Logit adjustment (Menon et al., 2021): a labeled loss whose minimum does not favor large classes.

    It is the cross-entropy of the logits + τ ln π; predictions and pseudo-labels have no shift.
    """

    usual_strength = 1.0

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        self.shift: Tensor = nn.Buffer(strength * label_distribution(task).log(), persistent=False)

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Shift the logits of the labeled loss."""
        return outputs._replace(labeled_logits=outputs.labeled_logits + self.shift)


class DebiasedPseudoLabels(Remedy):
    """DebiasPL (Wang et al., 2022): pseudo-labels without the bias of the average prediction, margins against it.

    Pseudo-labels are those of the weak logits - λ ln p̂; the unlabeled loss is that of the strong logits + λ ln p̂. p̂ is
    a moving average of the mean prediction for weak views. Its decay is 0.999 for the 131,072 steps of a full run and
    less for a shorter one, as that of BatchNorm's statistics.
    """

    usual_strength = 0.5

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        self.average: Tensor = nn.Buffer(torch.full((task.classes,), 1 / task.classes))

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Shift the weak logits by the average before this batch, the strong ones by the average with it."""
        debiased = outputs.weak.logits - self.strength * safe_log(self.average)
        mean = outputs.weak.logits.softmax(1).mean(0)
        update_average(self.average, mean, 1 - statistics_momentum(context.steps))
        shifted = outputs.strong_logits + self.strength * safe_log(self.average)
        return with_weak_logits(outputs, debiased)._replace(strong_logits=shifted)


class ClassRebalancingSelfTraining(Remedy):
    """CReST (Wei et al., 2021): unlabeled images that are predicted as small classes join the labeled ones.

    Training has 6 parts. From the second one on, labeled images include unlabeled ones, labeled after each part. Of the
    images predicted as a class, the most confident ones are chosen: all of the smallest class, the fewest of the
    largest. Pseudo-labels are aligned with π^t, normalized; t falls from 1 in the first part to 0.5 in the last.
    """

    usual_strength = 1 / 3
    parts = 6  # G
    last_exponent = 0.5  # t_min

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        self.alignment = DistributionAlignment(task, 0.0)
        # μ_k = (N_m / N_1)^α, where m is as far from the smallest class as k, of its rank, is from the largest.
        shares = label_distribution(task)
        order = shares.argsort(descending=True, stable=True)
        rates = torch.empty_like(shares)
        rates[order] = (shares[order.flip(0)] / shares.max()) ** strength
        self.rates: Tensor = nn.Buffer(rates, persistent=False)
        self.predictions: Tensor = nn.Buffer(torch.zeros(task.unlabeled, task.classes))  # 0: not drawn yet
        self.given_labels: Tensor = nn.Buffer(torch.full((task.unlabeled,), -1))

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Choose labels where a part begins; remember and align the predictions for the weak views."""
        part, before = (self.parts * step // context.steps for step in (context.step, context.step - 1))
        if part > max(before, 0):
            # The ⌊μ_k n_k⌋ most confident of the n_k images predicted as k; no prediction yet has the confidence 0.
            confidence, predicted = self.predictions.max(1)
            self.given_labels.fill_(-1)
            for label, rate in enumerate(self.rates.tolist()):
                images = ((predicted == label) & (confidence > 0)).nonzero().squeeze(1)
                order = confidence[images].argsort(descending=True, stable=True)
                self.given_labels[images[order[: int(rate * len(images))]]] = label
        probabilities = outputs.weak.logits.softmax(1)
        remember(self.predictions, batch.rows, probabilities)
        exponent = 1 - part / (self.parts - 1) * (1 - self.last_exponent)
        return with_weak_logits(outputs, safe_log(self.alignment.aligned(probabilities, context.step, exponent)))


class RefinedPseudoLabels(Remedy):
    """DARP (Kim et al., 2020): the pseudo-labels of all unlabeled images are refined to be distributed as the labels.

    The pseudo-label of an image is its row in the last refinement of the predictions for all of them.
    """

    warm_up = 0.4  # fraction of training before the first refinement
    every = 10  # steps between two refinements
    kept = 2.0  # α: for each class, the α M_k most probable images are kept

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        uniform = torch.full((task.unlabeled, task.classes), 1 / task.classes)
        self.predictions: Tensor = nn.Buffer(uniform)
        self.refined: Tensor = nn.Buffer(uniform.clone())
        # M (classes,): how many unlabeled images of each class there are, if they are distributed as the labels.
        self.wanted: Tensor = nn.Buffer(label_distribution(task) * task.unlabeled, persistent=False)

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Remember the predictions; after the warm-up, replace them by the refined ones."""
        remember(self.predictions, batch.rows, outputs.weak.logits.softmax(1))
        steps = context.step - math.ceil(self.warm_up * context.steps)
        if steps < 0:
            return outputs
        if steps % self.every == 0:
            likely = without_noise(self.predictions.double(), self.wanted, self.kept)
            self.refined.copy_(refined(likely, self.wanted))
        return with_weak_logits(outputs, safe_log(self.refined[batch.rows]))


def without_noise(probabilities: Tensor, wanted: Tensor, alpha: float) -> Tensor:
    """Keep the ⌊α M_k⌋ largest probabilities (n, classes) of each class k, scaled to the sum M_k (classes,).

    Rows are normalized to sum 1; no entry is 0.
    """
    values, order = probabilities.sort(dim=0, descending=True, stable=True)
    rank = torch.arange(len(probabilities), device=probabilities.device)
    kept = rank[:, None] < (alpha * wanted).floor()
    scale = (wanted + 1e-6) / ((values * kept).sum(0) + 1e-6)
    scaled = torch.zeros_like(probabilities).scatter(0, order, values * kept) * scale + 1e-6
    return scaled / scaled.sum(1, keepdim=True)


def refined(probabilities: Tensor, wanted: Tensor) -> Tensor:
    """min Σ_m w_m KL(X_m ‖ p_m) over X (n, classes) with row sums 1 and column sums M, w_m = 1 / entropy of row m.

    No p (n, classes) may be 0, and M (classes,) must have the sum n. The solution has X_mk ∝ p_mk exp(-ν_k / w_m) in
    each row. Ten times in turn, rows are normalized and the ν_k are found by Newton's method.
    """
    log_p, target = probabilities.log(), wanted.to(probabilities.dtype).log()
    # A row without entropy would never change; its weight stays finite.
    entropy = (-probabilities * (probabilities + 1e-6).log()).sum(1, keepdim=True).clamp(min=1e-6)
    nu = torch.zeros_like(target)
    for _ in range(10):
        logs = log_p - (log_p - nu * entropy).logsumexp(1, keepdim=True)
        # ln Σ_m exp(logs_mk - ν_k · entropy_m) = ln M_k, for all k at once. The left side is convex and decreasing in
        # ν_k, so that the method converges from any start.
        for _ in range(30):
            terms = logs - nu * entropy
            gap = terms.logsumexp(0) - target
            nu = nu + gap / (terms.softmax(0) * entropy).sum(0)
            if bool((gap.abs() < 1e-9).all()):
                break
    return (log_p - nu * entropy).softmax(1)


class AuxiliaryBalancedClassifier(Remedy):
    """ABC (Lee et al., 2021): a second classifier on the same features, trained as if the classes were balanced.

    The balanced classifier is the head of the network, which is saved; the method trains a linear head of its own.
    Large classes are left out at random: an image of class k counts with probability N_min / N_k in the labeled loss of
    the balanced classifier, and with 1 - (s/S)(1 - N_min / N_k) at step s of S in its unlabeled loss.
    """

    needs_features = True
    threshold = 0.95

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        shares = label_distribution(task)
        self.kept: Tensor = nn.Buffer(shares.min() / shares, persistent=False)
        self.head = nn.Linear(task.features, task.classes)

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Add the losses of the balanced classifier; give the method the outputs of its own head."""
        weak, labeled, strong = (
            Output(self.head(view.features), view.features) for view in (outputs.weak, outputs.labeled, outputs.strong)
        )
        weak = Output(weak.logits.detach(), weak.features)
        # (1/B) Σ M H(label, labeled view), and (1/μB) Σ M 1(max(q) ≥ 0.95) H(q, strong view) with soft targets q
        labeled_cost = F.cross_entropy(outputs.labeled.logits, batch.labels, reduction="none")
        labeled_mask = _bernoulli(self.kept[batch.labels], context.generator)
        targets = outputs.weak.logits.softmax(1)
        confidence, predicted = targets.max(1)
        kept = 1 - context.step / context.steps * (1 - self.kept[predicted])
        mask = _bernoulli(kept, context.generator) * (confidence >= self.threshold)
        cost = -(targets * outputs.strong.logits.log_softmax(1)).sum(1)
        losses = {"balanced_labeled_ce": (labeled_cost * labeled_mask).mean()}
        losses["balanced_unlabeled_ce"] = (cost * mask).mean()
        return ViewOutputs(labeled, weak, strong, labeled.logits, strong.logits, losses)


def _bernoulli(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """1 with these probabilities (n,), else 0; drawn on the CPU."""
    draws = torch.rand(len(probabilities), generator=generator, dtype=torch.float64).to(probabilities.device)
    return (draws < probabilities).to(probabilities.dtype)


class DASO(Remedy):
    """DASO (Oh et al., 2022): pseudo-labels of frequent classes lean on the similarity to class prototypes.

    q ← (1 - v) q + v q', where q' is the softmax of similarities to prototypes and v = v(q̂) depends on the class:
    v(k) = m_k^(1/T) / max m^(1/T), where m counts the pseudo-labels of the last 100 steps. A prototype is the mean of
    the EMA model's features of the last 256 labeled images of a class. The loss of semantic alignment, H(q' of the weak
    view, q' of the strong view), is added.
    """

    usual_strength = 1.5
    needs_features = True
    size = 256  # features per class
    temperature = 0.05  # of the similarities
    warm_up = 0.02  # fraction of training in which only the queue is filled: 5,000 of 250,000 steps
    every = 100  # steps over which the pseudo-labels are counted

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        self.queue: Tensor = nn.Buffer(torch.zeros(task.classes, self.size, task.features))
        self.queued: Tensor = nn.Buffer(torch.zeros(task.classes, dtype=torch.long))  # features so far
        self.counts: Tensor = nn.Buffer(torch.zeros(task.classes, dtype=torch.long))  # in the current 100 steps
        self.last_counts: Tensor = nn.Buffer(torch.ones(task.classes, dtype=torch.long))  # in the 100 steps before

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Fill the queue; after the warm-up, blend the pseudo-labels and add the alignment loss."""
        with running_statistics_kept(context.teacher.train()), torch.no_grad():
            features = context.teacher(batch.labeled[0]).features
        context.teacher.eval()
        enqueue(self.queue, self.queued, features.to(self.queue.dtype), batch.labels)
        if context.step >= self.warm_up * context.steps:
            weak = self._similarities(outputs.weak.features).softmax(1)
            linear = outputs.weak.logits.softmax(1)
            shares = (self.last_counts / self.last_counts.max()) ** (1 / self.strength)
            v = shares[linear.argmax(1)][:, None]
            alignment = soft_cross_entropy(self._similarities(outputs.strong.features), weak)
            outputs = with_weak_logits(outputs, safe_log((1 - v) * linear + v * weak))
            outputs = outputs._replace(extra_losses={"alignment": alignment})
        self.counts += histogram(outputs.weak.logits.argmax(1), len(self.counts))
        if (context.step + 1) % self.every == 0:
            self.last_counts.copy_(self.counts)
            self.counts.zero_()
        return outputs

    def _similarities(self, features: Tensor) -> Tensor:
        """Cosine similarities (n, classes) to the prototypes, divided by the temperature."""
        prototypes = self.queue.sum(1) / self.queued.clamp(1, self.size)[:, None]
        return F.cosine_similarity(features[:, None], prototypes[None], dim=2) / self.temperature


def enqueue(queue: Tensor, queued: Tensor, features: Tensor, labels: Tensor) -> None:
    """Put features (n, width) into the queues of their classes, in order; each queue keeps the latest.

    `queue` is (classes, size, width) and `queued` (classes,) counts all features so far; both change in place.
    """
    one_hot = labels[:, None] == torch.arange(len(queue), device=labels.device)
    position = (one_hot.cumsum(0) - 1).gather(1, labels[:, None]).squeeze(1)
    slots = labels * queue.shape[1] + (queued[labels] + position) % queue.shape[1]
    queue.view(-1, queue.shape[2])[slots] = features[last_occurrence(slots)]
    queued += one_hot.sum(0)


REMEDIES: dict[str, type[Remedy]] = {
    "none": Remedy,
    "alignment": DistributionAlignment,
    "logit-adjustment": LogitAdjustment,
    "debiaspl": DebiasedPseudoLabels,
    "abc": AuxiliaryBalancedClassifier,
    "darp": RefinedPseudoLabels,
    "daso": DASO,
    "crest": ClassRebalancingSelfTraining,
}


@dataclass(eq=False)
class Rebalanced(Method):
    """Base class of methods that learn from a labeled, a weak and a strong view, with a remedy for unbalanced classes.

    `forward` takes the outputs of the network instead of a model. The remedy changes them before, and its own losses
    are added afterwards.
    """

    rebalance: Rebalance = option(
        "none",
        "Remedy for unbalanced classes: alignment aligns the pseudo-labels with the labels, logit-adjustment "
        "shifts the logits of the labeled loss; the others are named after their papers.",
    )
    rebalance_strength: float | None = option(
        None,
        "Strength of {rebalance}: τ of logit-adjustment (1 by default), λ of debiaspl (0.5), T of daso (1.5), "
        "α of crest (1/3).",
        interval="(0, inf)",
    )

    @property
    def given_labels(self) -> Tensor | None:
        """Labels that the remedy has given to unlabeled images, as in `Method`."""
        return getattr(getattr(self, "remedy", None), "given_labels", None)

    def prepare(self, task: Task) -> None:
        """Make the remedy."""
        kind, strength = REMEDIES[self.rebalance], self.rebalance_strength
        if kind.needs_features and task.features == 0:
            raise ConfigError(
                f"{setting('rebalance')} is {self.rebalance}, which needs features, but this network returns logits "
                "only; let it return (logits, features)"
            )
        if kind.usual_strength is None and strength is not None:
            raise ConfigError(
                f"{setting('rebalance_strength')} is {strength:g}, but {setting('rebalance')} {self.rebalance} has no "
                "strength; remove it"
            )
        self.remedy = kind(task, strength or kind.usual_strength or 0.0)

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """Pass the views through the network, apply the remedy, and compute the losses of the outputs."""
        outputs: ViewOutputs = self.remedy(three_views(model, batch), batch, context)
        losses: Losses = nn.Module.__call__(self, outputs, batch, context)
        total = sum(outputs.extra_losses.values(), start=losses.total)
        return Losses(total, {**losses.parts, **outputs.extra_losses}, losses.pseudo_labels)
