"""FineSSL (Gan and Wei, 2024), for pretrained networks: margins that balance classes, and a second, unsure head."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.options import option
from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods.passes import joint_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task, register_method, shared
from rankingmatch.methods.targets import LearnedLabels, pseudo_label


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
