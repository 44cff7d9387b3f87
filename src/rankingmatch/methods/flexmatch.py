"""FlexMatch (Zhang et al., 2021): FixMatch with a lower threshold for classes that are learned less well."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task
from rankingmatch.methods.targets import pseudo_label


@dataclass(eq=False)
class FlexMatch(Method):
    """FixMatch's losses; how far a class is learned is counted by the last confident labels of the whole pool."""

    threshold: float = shared_options.threshold()
    unlabeled_weight: float = shared_options.unlabeled_weight()
    weak_pass: WeakPass = shared_options.weak_pass()

    def prepare(self, task: Task) -> None:
        """`learned` has the last confident label of every unlabeled row, -1 before there is one."""
        self.learned: Tensor = nn.Buffer(torch.full((task.unlabeled,), -1))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(max(q) ≥ T(q̂)) H(q̂, strong view)."""
        (labeled,), (weak, strong) = batch.labeled, batch.unlabeled
        outputs = view_outputs(model, labeled, weak, strong, self.weak_pass)
        probability, label = outputs.weak_logits.softmax(1).max(1)
        # The thresholds are those of the steps before; this batch counts from the next step on.
        thresholds = flexible_thresholds(self.learned, outputs.weak_logits.shape[1], self.threshold)
        pseudo = PseudoLabels(label, probability >= thresholds[label])
        self.learned.copy_(remembered(self.learned, batch.rows, pseudo_label(outputs.weak_logits, self.threshold)))
        labeled_ce = F.cross_entropy(outputs.labeled.logits, batch.labels)
        unlabeled_ce = masked_cross_entropy(outputs.strong.logits, pseudo.labels, pseudo.confident)
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)


def flexible_thresholds(learned: Tensor, classes: int, threshold: float) -> Tensor:
    """T(c) = τ β(c) / (2 - β(c)), β(c) = rows learned as c / max(most rows of a class, rows not yet learned).

    `learned` is (pool,) of labels, -1 where there is none; returns (classes,).
    """
    # Counts of -1 and of the classes: their maximum is the denominator.
    counts = torch.zeros(1 + classes, dtype=torch.long, device=learned.device)
    counts.scatter_add_(0, learned + 1, torch.ones_like(learned))
    beta = counts[1:] / counts.max()
    return threshold * beta / (2 - beta)


def remembered(learned: Tensor, rows: Tensor, pseudo: PseudoLabels) -> Tensor:
    """`learned` with the confident labels of a batch at their rows; of a row that occurs twice the later one counts."""
    position = torch.arange(len(rows), device=rows.device)
    # A maximum, unlike an assignment, does not depend on the order in which a device works.
    latest = torch.full_like(learned, -1).scatter_reduce(0, rows, torch.where(pseudo.confident, position, -1), "amax")
    return torch.where(latest >= 0, pseudo.labels[latest.clamp(min=0)], learned)
