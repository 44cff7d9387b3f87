"""CReST (Wei et al., 2021): unlabeled images that are predicted as small classes join the labeled ones."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from rankingmatch.methods.passes import ViewOutputs
from rankingmatch.methods.protocol import Batch, Context, Task
from rankingmatch.methods.rebalancing.distribution_alignment import DistributionAlignment
from rankingmatch.methods.rebalancing.remedy import Remedy, label_distribution, remember, safe_log

__all__ = ["ClassRebalancingSelfTraining", "chosen_labels", "mirrored_rates"]

GENERATIONS = 6  # G
LAST_EXPONENT = 0.5  # t_min


class ClassRebalancingSelfTraining(Remedy):
    """Training has G parts. From the second one on, labeled images include unlabeled ones, labeled after each part.

    Of the images predicted as a class, the most confident ones are chosen: all of the smallest class, the fewest of the
    largest. Pseudo-labels are aligned with π^t, normalized; t falls from 1 in the first part to 0.5 in the last.
    """

    usual_strength: ClassVar[float | None] = 1 / 3

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        self.alignment = DistributionAlignment(task, 0.0)
        self.rates: Tensor = nn.Buffer(mirrored_rates(label_distribution(task), strength), persistent=False)
        self.predictions: Tensor = nn.Buffer(torch.zeros(task.unlabeled, task.classes))  # 0: not drawn yet
        self.given_labels: Tensor = nn.Buffer(torch.full((task.unlabeled,), -1))

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Choose labels where a part begins; remember and align the predictions for the weak views."""
        part, before = (GENERATIONS * step // context.steps for step in (context.step, context.step - 1))
        if part > max(before, 0):
            self.given_labels.copy_(chosen_labels(self.predictions, self.rates))
        probabilities = outputs.weak_logits.softmax(1)
        remember(self.predictions, batch.rows, probabilities)
        exponent = 1 - part / (GENERATIONS - 1) * (1 - LAST_EXPONENT)
        aligned = self.alignment.aligned(probabilities, context.step, exponent)
        return outputs._replace(weak_logits=safe_log(aligned))


def mirrored_rates(shares: Tensor, alpha: float) -> Tensor:
    """μ (classes,): (N_m / N_1)^α for the class that is as far from the smallest as m, of its rank, from the largest.

    So the smallest class has the rate 1, and the largest (N_min / N_max)^α.
    """
    order = shares.argsort(descending=True, stable=True)
    rates = torch.empty_like(shares)
    rates[order] = (shares[order.flip(0)] / shares.max()) ** alpha
    return rates


def chosen_labels(probabilities: Tensor, rates: Tensor) -> Tensor:
    """The predicted classes (n,) of the ⌊μ_c n_c⌋ most confident of the n_c images predicted as c; -1 for all others.

    Images whose probabilities are all 0 have no prediction yet.
    """
    confidence, predicted = probabilities.max(1)
    chosen = torch.full_like(predicted, -1)
    for label, rate in enumerate(rates.tolist()):
        images = ((predicted == label) & (confidence > 0)).nonzero().squeeze(1)
        order = confidence[images].argsort(descending=True, stable=True)
        chosen[images[order[: int(rate * len(images))]]] = label
    return chosen
