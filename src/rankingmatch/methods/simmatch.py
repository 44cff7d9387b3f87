"""SimMatch (Zheng et al., 2022): classes and similarities to labeled images agree between weak and strong views."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.devices import full_precision
from rankingmatch.core.options import option
from rankingmatch.losses import l2_normalized, soft_cross_entropy
from rankingmatch.methods.passes import joint_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task, register_method, shared
from rankingmatch.methods.targets import (
    RECENT_BATCHES,
    Projection,
    aligned_with_recent,
    last_occurrence,
)


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
