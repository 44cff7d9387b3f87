"""Methods that also learn from features: embeddings, memories, and further heads."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.augment import quarter_turns
from rankingmatch.core.devices import full_precision
from rankingmatch.core.options import option
from rankingmatch.losses import l2_normalized, masked_cross_entropy, soft_cross_entropy
from rankingmatch.methods.passes import joint_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task, register_method, shared
from rankingmatch.methods.targets import LearnedLabels, align_distribution, last_occurrence, pseudo_label

RECENT_BATCHES = 32  # over which the mean prediction for an alignment is taken


class Projection(nn.Module):
    """Features (n, width) → L2-normalized embeddings (n, dimensions), by two linear layers.

    It belongs to the method, not to the network: checkpoints contain it, an exported model does not. If the network
    returns logits only, it takes these.
    """

    def __init__(self, task: Task, dimensions: int) -> None:
        super().__init__()
        width = task.features or task.classes
        self.layers = nn.Sequential(nn.Linear(width, width), nn.LeakyReLU(0.1), nn.Linear(width, dimensions))

    def forward(self, features: Tensor) -> Tensor:
        """Compute the embeddings."""
        with full_precision(features.device):
            return l2_normalized(self.layers(features))


@torch.no_grad()
def aligned_with_recent(probabilities: Tensor, recent: Tensor, step: int) -> Tensor:
    """Normalize(q / p̃), where p̃ is the mean prediction for the last batches, including this one.

    `recent` has the mean predictions (batches, classes), initially 0; the row of this step is updated. Rows that are
    still 0 scale p̃, which cancels.
    """
    recent[step % len(recent)] = probabilities.mean(0)
    return align_distribution(probabilities, torch.ones_like(recent[0]), recent.mean(0))


@register_method("comatch")
class CoMatch(Method):
    """FixMatch's losses with smoothed soft targets, and a contrastive loss on the graph of the pseudo-labels."""

    reference = "Li 2021"
    good_for = "many unlabeled images that form clusters"
    row = ("weak, strong", "alignment, smoothing, threshold", "embeddings follow pseudo-labels")
    unlabeled_views = ("weak", "strong", "strong")
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight")
    contrastive_weight: float = option(1.0, "λ_c: weight of the contrastive loss.", interval="[0, inf)")
    smoothing: float = shared("smoothing")
    similarity_temperature: float = shared("similarity_temperature")
    graph_threshold: float = option(0.8, "T: connect images whose pseudo-labels are this similar.", interval="[0, 1]")
    memory: int = option(2560, "K: embeddings of recent weak views in memory.", interval="[1, 1048576]")
    dimensions: int = shared("dimensions")

    def prepare(self, task: Task) -> None:
        """Create the projection, the recent mean predictions, and the memory of embeddings z and predictions."""
        self.projection = Projection(task, self.dimensions)
        self.recent: Tensor = nn.Buffer(torch.zeros(RECENT_BATCHES, task.classes))
        self.embeddings: Tensor = nn.Buffer(torch.zeros(self.memory, self.dimensions))
        self.probabilities: Tensor = nn.Buffer(torch.zeros(self.memory, task.classes))
        self.written: Tensor = nn.Buffer(torch.tensor(0))  # rows written so far; the next one replaces the oldest

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(max(q) ≥ τ) H(q, strong view) + λ_c (1/μB) Σ H(graph, similarities)."""
        labeled, weak, strong, other = joint_outputs(model, *batch.labeled, *batch.unlabeled)
        labeled_ce = F.cross_entropy(labeled.logits, batch.labels)
        aligned = aligned_with_recent(weak.logits.detach().softmax(1), self.recent, context.step)
        with full_precision(aligned.device):
            with torch.no_grad():
                embedding, labeled_embedding = self.projection(weak.features), self.projection(labeled.features)
                # q = α p + (1 - α) Σ_k a_k p_k with a = softmax(z·z_k / t) over the memory; p until it is full
                attention = (embedding @ self.embeddings.T / self.similarity_temperature).softmax(1)
                smoothed = self.smoothing * aligned + (1 - self.smoothing) * (attention @ self.probabilities)
                targets = torch.where(self.written >= self.memory, smoothed, aligned)
                # The weak views, and the labeled ones with their labels, replace the oldest rows in memory.
                embeddings = torch.cat([embedding, labeled_embedding])
                probabilities = torch.cat([aligned, F.one_hot(batch.labels, aligned.shape[1])])
                kept = min(len(embeddings), self.memory)  # of more rows than the memory has, the last ones
                rows = (self.written + torch.arange(kept, device=embeddings.device)) % self.memory
                self.embeddings[rows], self.probabilities[rows] = embeddings[-kept:], probabilities[-kept:]
                self.written += kept
            confident = targets.amax(1) >= self.threshold
            unlabeled_ce = soft_cross_entropy(strong.logits, targets * confident[:, None])
            similarity = self.projection(strong.features) @ self.projection(other.features).T
            # The graph: W_ij = q_i·q_j if that is at least T, else 0, and W_ii = 1; each row is divided by its sum.
            graph = (targets @ targets.T).fill_diagonal_(1)
            graph = graph * (graph >= self.graph_threshold)
            graph = graph / graph.sum(1, keepdim=True)
            contrastive = soft_cross_entropy(similarity / self.similarity_temperature, graph)
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce + self.contrastive_weight * contrastive
        parts = {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce, "contrastive": contrastive}
        return Losses(total, parts, PseudoLabels(targets.argmax(1), confident))


@register_method("simmatch")
class SimMatch(Method):
    """FixMatch's losses with soft targets smoothed by labeled neighbors, and a loss on similarities to those."""

    reference = "Zheng 2022"
    good_for = "few labels: unlabeled images follow similar labeled ones"
    row = ("weak, strong", "alignment, smoothing, threshold", "similarities to labeled images")
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight")
    instance_weight: float = option(1.0, "λ_in: weight of the loss on similarities.", interval="[0, inf)")
    smoothing: float = shared("smoothing")
    similarity_temperature: float = shared("similarity_temperature", 0.1)
    embedding_decay: float = option(0.7, "m: decay of the averages of labeled images' embeddings.", interval="[0, 1)")
    dimensions: int = shared("dimensions", 128)

    def prepare(self, task: Task) -> None:
        """Create the projection, the recent mean predictions, and the memory: labeled images' embeddings and labels."""
        self.projection = Projection(task, self.dimensions)
        self.recent: Tensor = nn.Buffer(torch.zeros(RECENT_BATCHES, task.classes))
        self.embeddings: Tensor = nn.Buffer(torch.zeros(task.labeled, self.dimensions))
        self.labels: Tensor = nn.Buffer(torch.full((task.labeled,), -1))  # -1: not seen yet

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(max(p̂) ≥ τ) H(p̂, strong view) + λ_in (1/μB) Σ H(similarities of weak, of strong)."""
        labeled, weak, strong = joint_outputs(model, *batch.labeled, *batch.unlabeled)
        labeled_ce = F.cross_entropy(labeled.logits, batch.labels)
        aligned = aligned_with_recent(weak.logits.detach().softmax(1), self.recent, context.step)
        with full_precision(aligned.device):
            with torch.no_grad():
                # z_i ← Normalize(m z_i + (1 - m) z), the first time z; of an image drawn twice, the last z counts.
                rows, last = batch.labeled_rows, last_occurrence(batch.labeled_rows)
                decay = self.embedding_decay * (self.labels[rows] >= 0)[:, None].to(self.embeddings)
                new = self.projection(labeled.features)[last]
                new = l2_normalized(decay * self.embeddings[rows] + (1 - decay) * new)
                self.embeddings[rows], self.labels[rows] = new.to(self.embeddings.dtype), batch.labels[last]
                # p̂ = α p + (1 - α) · sums of w by class; ŵ_i ∝ w_i p(class of i). Images not seen yet have w = 0.
                similarity = self._similarities(weak.features).softmax(1)
                one_hot = F.one_hot(self.labels.clamp(min=0), aligned.shape[1]).to(aligned)
                targets = self.smoothing * aligned + (1 - self.smoothing) * (similarity @ one_hot)
                calibrated = similarity * (aligned @ one_hot.T)
                calibrated /= calibrated.sum(1, keepdim=True).clamp(min=torch.finfo(aligned.dtype).tiny)
            confident = targets.amax(1) >= self.threshold
            unlabeled_ce = soft_cross_entropy(strong.logits, targets * confident[:, None])
            instance_ce = soft_cross_entropy(self._similarities(strong.features), calibrated)
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce + self.instance_weight * instance_ce
        parts = {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce, "instance_ce": instance_ce}
        return Losses(total, parts, PseudoLabels(targets.argmax(1), confident))

    def _similarities(self, features: Tensor) -> Tensor:
        """z·z_i / t for the labeled images i (n, labeled); of those not seen yet, a number whose exponential is 0."""
        embeddings: Tensor = self.projection(features)
        return (embeddings @ self.embeddings.T / self.similarity_temperature).masked_fill(self.labels < 0, -1e9)


@register_method("crmatch")
class CRMatch(Method):
    """FixMatch's losses, the cosine between projected features of weak and strong views, and a rotation loss."""

    reference = "Fan 2021"
    good_for = "images whose orientation carries information"
    row = ("weak, strong", "threshold", "feature distance, rotation loss")
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight")
    distance_weight: float = option(1.0, "λ_d: weight of the feature distance loss.", interval="[0, inf)")
    rotation_weight: float = option(1.0, "Weight of the rotation loss.", interval="[0, inf)")

    def prepare(self, task: Task) -> None:
        """Create the projection of the features, and the head that predicts rotations."""
        width = task.features or task.classes  # if the network returns logits only, they take these
        self.projection = nn.Linear(width, width)
        self.rotation_head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u L_u + λ_d (1/μB) Σ 1(confident) max(0, cos(z_weak, z_strong)) + λ_r L_r."""
        rotated, turns = rotations(batch.unlabeled[0][: len(batch.labels)])
        labeled, weak, strong, turned = joint_outputs(model, *batch.labeled, *batch.unlabeled, rotated)
        pseudo = pseudo_label(weak.logits.detach(), self.threshold)
        labeled_ce = F.cross_entropy(labeled.logits, batch.labels)
        unlabeled_ce = masked_cross_entropy(strong.logits, pseudo.labels, pseudo.confident)
        # Both views have gradients. A cosine below 0 costs nothing.
        cosine = F.cosine_similarity(self.projection(weak.features), self.projection(strong.features))
        distance = (cosine.clamp(min=0) * pseudo.confident).mean()
        rotation_ce = F.cross_entropy(self.rotation_head(turned.features), turns)
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce
        total = total + self.distance_weight * distance + self.rotation_weight * rotation_ce
        parts = {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}
        return Losses(total, {**parts, "feature_cosine": distance, "rotation_ce": rotation_ce}, pseudo)


def rotations(images: Tensor) -> tuple[Tensor, Tensor]:
    """The images rotated by 0, 1, 2 and 3 quarter turns, or by 0 and 2 if they are not square; and the turns."""
    every = range(4) if images.shape[2] == images.shape[3] else range(0, 4, 2)
    turns = torch.tensor(every).repeat_interleave(len(images))
    return quarter_turns(images.repeat(len(every), 1, 1, 1), turns), turns.to(images.device)


@register_method("finessl", preset={"mu": 1})
class FineSSL(Method):
    """Balanced margin softmax, weighted by the confidence of an auxiliary head that is trained on smoothed labels."""

    reference = "Gan 2024"
    good_for = "pretrained networks that prefer some classes"
    row = ("weak, strong", "weight", "balanced margin softmax")
    unlabeled_views = ("weak", "strong", "strong")
    threshold: float = shared("threshold", 0.7)
    unlabeled_weight: float = shared("unlabeled_weight", 3.0)
    class_margin: float = option(8.0, "α: margin of a class not learned at all while others are.", interval="[0, inf)")
    label_smoothing: float = option(0.5, "Smoothing of the auxiliary head's pseudo-labels.", interval="[0, 1)")

    def prepare(self, task: Task) -> None:
        """Create the auxiliary head, and the memory of the last confident label of every unlabeled image."""
        # If the network returns logits only, the head takes these.
        self.auxiliary_head = nn.Linear(task.features or task.classes, task.classes)
        self.learned = LearnedLabels(task)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s^BMS + L_s^aux + λ_u (1/2μB) Σ max(q_aux) BMS(q̂, strong) + mean over confident of H(smooth q̂, aux)."""
        labeled, weak, *strong = joint_outputs(model, *batch.labeled, *batch.unlabeled)
        # δ(c) = α (max σ - min σ) (1 - σ(c)) / (1 + σ(c)), where σ(c) = images learned as c / most images of a class.
        # The margins δ depend on the earlier steps only; this batch counts from the next step on.
        status = self.learned.counts[1:] / self.learned.counts[1:].max().clamp(min=1)
        margins = self.class_margin * (status.max() - status.min()) * (1 - status) / (1 + status)
        pseudo = pseudo_label(weak.logits.detach(), self.threshold)
        self.learned.update(batch.rows, pseudo)
        parts = {"labeled_ce": F.cross_entropy(with_margins(labeled.logits, batch.labels, margins), batch.labels)}
        # The auxiliary head does not train the features.
        auxiliary_labeled = self.auxiliary_head(labeled.features.detach())
        parts["auxiliary_labeled_ce"] = F.cross_entropy(auxiliary_labeled, batch.labels)
        with torch.no_grad():
            weights = self.auxiliary_head(weak.features).softmax(1).amax(1)
        twice = pseudo.labels.repeat(2)
        logits = with_margins(torch.cat([view.logits for view in strong]), twice, margins)
        parts["unlabeled_ce"] = masked_cross_entropy(logits, twice, weights.repeat(2))
        # H(t, ·) with t = 1 - s for the label and s/(C - 1) for the others
        auxiliary = self.auxiliary_head(torch.cat([view.features for view in strong]).detach()).log_softmax(1)
        own = auxiliary.gather(1, twice[:, None]).squeeze(1)
        others = (auxiliary.sum(1) - own) / (auxiliary.shape[1] - 1)
        cost = -(1 - self.label_smoothing) * own - self.label_smoothing * others
        confident = pseudo.confident.repeat(2)
        parts["auxiliary_ce"] = (cost * confident).sum() / confident.sum().clamp(min=1)
        total = parts["labeled_ce"] + parts["auxiliary_labeled_ce"]
        total = total + self.unlabeled_weight * parts["unlabeled_ce"] + parts["auxiliary_ce"]
        return Losses(total, parts, pseudo)


def with_margins(logits: Tensor, labels: Tensor, margins: Tensor) -> Tensor:
    """Logits (n, classes) to which the margin of a row's label is added, except at the label itself."""
    others = torch.arange(logits.shape[1], device=logits.device) != labels[:, None]
    return logits + others * margins[labels][:, None]
