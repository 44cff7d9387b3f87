"""ABC (Lee et al., 2021): a second classifier on the same features, trained as if the classes were balanced."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.methods.passes import ViewOutputs
from rankingmatch.methods.protocol import Batch, Context, Task
from rankingmatch.methods.rebalancing.remedy import Remedy, label_distribution
from rankingmatch.networks import Output

__all__ = ["AuxiliaryBalancedClassifier"]

THRESHOLD = 0.95


class AuxiliaryBalancedClassifier(Remedy):
    """The balanced classifier is the head of the network, which is saved; the method trains a linear head of its own.

    Large classes are left out at random: an image of class k counts with probability N_min / N_k in the labeled loss of
    the balanced classifier, and with 1 - (s/S)(1 - N_min / N_k) at step s of S in its unlabeled loss.
    """

    needs_features: ClassVar[bool] = True

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        shares = label_distribution(task)
        self.kept: Tensor = nn.Buffer(shares.min() / shares, persistent=False)
        self.head = nn.Linear(task.features, task.classes)

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Add the losses of the balanced classifier; give the method the outputs of its own head."""
        assert outputs.weak_features is not None
        weak_logits = self.head(outputs.weak_features).detach()
        return outputs._replace(
            labeled=Output(self.head(outputs.labeled.features), outputs.labeled.features),
            weak_logits=weak_logits,
            strong=Output(self.head(outputs.strong.features), outputs.strong.features),
            extra_losses=self._balanced_losses(outputs, batch.labels, context),
        )

    def _balanced_losses(self, outputs: ViewOutputs, labels: Tensor, context: Context) -> dict[str, Tensor]:
        """(1/B) Σ M H(label, labeled view), and (1/μB) Σ M 1(max(q) ≥ 0.95) H(q, strong view) with soft targets q."""
        labeled_cost = F.cross_entropy(outputs.labeled.logits, labels, reduction="none")
        labeled_mask = _bernoulli(self.kept[labels], context.generator)
        targets = outputs.weak_logits.softmax(1)
        confidence, predicted = targets.max(1)
        kept = 1 - context.step / context.steps * (1 - self.kept[predicted])
        mask = _bernoulli(kept, context.generator) * (confidence >= THRESHOLD)
        cost = -(targets * outputs.strong.logits.log_softmax(1)).sum(1)
        return {
            "balanced_labeled_ce": (labeled_cost * labeled_mask).mean(),
            "balanced_unlabeled_ce": (cost * mask).mean(),
        }


def _bernoulli(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """1 with these probabilities (n,), else 0; drawn on the CPU."""
    draws = torch.rand(len(probabilities), generator=generator, dtype=torch.float64).to(probabilities.device)
    return (draws < probabilities).to(probabilities.dtype)
