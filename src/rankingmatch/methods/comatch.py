"""CoMatch (Li et al., 2021): pseudo-labels smoothed over similar images, and embeddings that follow pseudo-labels."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.devices import full_precision
from rankingmatch.core.options import option
from rankingmatch.losses import soft_cross_entropy
from rankingmatch.methods.passes import joint_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task, register_method, shared
from rankingmatch.methods.targets import (
    RECENT_BATCHES,
    Projection,
    aligned_with_recent,
)


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
