"""FlexMatch (Zhang et al., 2021): FixMatch with a lower threshold for classes that are learned less well."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankingmatch.methods import shared_options
from rankingmatch.methods.fixmatch import fixmatch_losses
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task
from rankingmatch.methods.targets import pseudo_label

__all__ = ["FlexMatch", "flexible_thresholds", "updated_labels"]


@dataclass(eq=False)
class FlexMatch(Method):
    """FixMatch's losses with thresholds per class, from the last confident labels of all unlabeled images."""

    threshold: float = shared_options.threshold()
    unlabeled_weight: float = shared_options.unlabeled_weight()
    weak_pass: WeakPass = shared_options.weak_pass()

    def prepare(self, task: Task) -> None:
        """Create `learned`: the last confident label of every unlabeled image, -1 if there was none yet."""
        self.learned: Tensor = nn.Buffer(torch.full((task.unlabeled,), -1))

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u (1/μB) Σ 1(max(q) ≥ T(q̂)) H(q̂, strong view)."""
        outputs = view_outputs(model, batch, self.weak_pass)
        # The thresholds depend on the earlier steps only; this batch counts from the next step on.
        thresholds = flexible_thresholds(self.learned, outputs.weak_logits.shape[1], self.threshold)
        pseudo = pseudo_label(outputs.weak_logits, thresholds)
        confident = pseudo_label(outputs.weak_logits, self.threshold)
        self.learned.copy_(updated_labels(self.learned, batch.rows, confident))
        return fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)


def flexible_thresholds(learned: Tensor, classes: int, threshold: float) -> Tensor:
    """T(c) = τ β(c) / (2 - β(c)), β(c) = images learned as c / max(most images of a class, images not yet learned).

    `learned` has the labels (unlabeled images,), -1 for an image without one; the thresholds are (classes,).
    """
    # The counts of -1 and of the classes; their maximum is the denominator.
    counts = torch.zeros(1 + classes, dtype=torch.long, device=learned.device)
    counts.scatter_add_(0, learned + 1, torch.ones_like(learned))
    beta = counts[1:] / counts.max()
    return threshold * beta / (2 - beta)


def updated_labels(learned: Tensor, rows: Tensor, pseudo: PseudoLabels) -> Tensor:
    """`learned` with the confident labels of a batch at `rows`; if a row occurs twice, the later label counts."""
    position = torch.arange(len(rows), device=rows.device)
    # Unlike an assignment, a maximum does not depend on the order in which a device processes the rows.
    latest = torch.full_like(learned, -1).scatter_reduce(0, rows, torch.where(pseudo.confident, position, -1), "amax")
    return torch.where(latest >= 0, pseudo.labels[latest.clamp(min=0)], learned)
