"""DARP (Kim et al., 2020): the pseudo-labels of all unlabeled images are refined to be distributed as the labels."""

import math

import torch
from torch import Tensor, nn

from rankingmatch.methods.passes import ViewOutputs
from rankingmatch.methods.protocol import Batch, Context, Task
from rankingmatch.methods.rebalancing.remedies import Remedy, label_distribution, remember, with_weak_logits
from rankingmatch.methods.targets import safe_log

KEPT = 2.0  # α: for each class, the α M_k most probable images are kept
ALTERNATIONS = 10  # T
NEWTON_STEPS = 30


class RefinedPseudoLabels(Remedy):
    """The pseudo-label of an image is its row in the last refinement of the predictions for all unlabeled images."""

    warm_up = 0.4  # fraction of training before the first refinement
    every = 10  # steps between two refinements

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
            self.refined.copy_(refined(without_noise(self.predictions.double(), self.wanted), self.wanted))
        return with_weak_logits(outputs, safe_log(self.refined[batch.rows]))


def without_noise(probabilities: Tensor, wanted: Tensor) -> Tensor:
    """Keep the ⌊α M_k⌋ largest probabilities (n, classes) of each class k, scaled to the sum M_k (classes,).

    Rows are normalized to sum 1; no entry is 0.
    """
    values, order = probabilities.sort(dim=0, descending=True, stable=True)
    rank = torch.arange(len(probabilities), device=probabilities.device)
    kept = rank[:, None] < (KEPT * wanted).floor()
    scale = (wanted + 1e-6) / ((values * kept).sum(0) + 1e-6)
    scaled = torch.zeros_like(probabilities).scatter(0, order, values * kept) * scale + 1e-6
    return scaled / scaled.sum(1, keepdim=True)


def refined(probabilities: Tensor, wanted: Tensor) -> Tensor:
    """min Σ_m w_m KL(X_m ‖ p_m) over X (n, classes) with row sums 1 and column sums M, w_m = 1 / entropy of row m.

    No p (n, classes) may be 0, and M (classes,) must have the sum n. The solution has X_mk ∝ p_mk exp(-ν_k / w_m) in
    each row. In turn, rows are normalized and the ν_k are found by Newton's method.
    """
    log_p, target = probabilities.log(), wanted.to(probabilities.dtype).log()
    # A row without entropy would never change; its weight stays finite.
    entropy = (-probabilities * (probabilities + 1e-6).log()).sum(1, keepdim=True).clamp(min=1e-6)
    nu = torch.zeros_like(target)
    for _ in range(ALTERNATIONS):
        logs = log_p - (log_p - nu * entropy).logsumexp(1, keepdim=True)
        # ln Σ_m exp(logs_mk - ν_k · entropy_m) = ln M_k, for all k at once. The left side is convex and decreasing in
        # ν_k, so that the method converges from any start.
        for _ in range(NEWTON_STEPS):
            terms = logs - nu * entropy
            gap = terms.logsumexp(0) - target
            nu = nu + gap / (terms.softmax(0) * entropy).sum(0)
            if bool((gap.abs() < 1e-9).all()):
                break
    return (log_p - nu * entropy).softmax(1)
