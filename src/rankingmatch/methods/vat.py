"""Virtual adversarial training (Miyato et al., 2018) with entropy minimisation."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.options import option
from rankingmatch.core.schedule import linear_ramp
from rankingmatch.losses import entropy, kl_divergence, l2_normalized
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import joint_logits, perturbed_logits, running_statistics_kept
from rankingmatch.methods.protocol import Batch, Context, Losses, Method


@dataclass(eq=False)
class VirtualAdversarialTraining(Method):
    """The prediction should stay where a small perturbation would change it most, and should be sure."""

    unlabeled_views: ClassVar[tuple[str, ...]] = ("weak",)
    epsilon: float = option(
        6.0, "ε: Euclidean length of the perturbation of an image, normalised to deviation 1.", interval="[0, inf)"
    )
    xi: float = option(
        1e-3,
        "ξ: distance at which a gradient is taken for the power iteration; the paper's 1e-6 is lost in float32.",
        interval="(0, inf)",
    )
    power_iterations: int = option(1, "Power iterations that find the perturbation's direction.", interval="[0, 100]")
    adversarial_weight: float = option(0.3, "Weight of the adversarial divergence.", interval="[0, inf)")
    entropy_weight: float = option(0.06, "Weight of the entropy of the predictions.", interval="[0, inf)")
    ramp: float = shared_options.ramp(0.4)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_v(s) (1/μB) Σ KL(q ‖ q(u + r)) + λ_e (1/μB) Σ H(q)."""
        (labeled,), (weak,) = batch.labeled, batch.unlabeled
        labeled_logits, weak_logits = joint_logits(model, labeled, weak)
        labeled_ce = F.cross_entropy(labeled_logits, batch.labels)
        unsureness = entropy(weak_logits).mean()
        with running_statistics_kept(model):
            divergence = self._divergence(model, weak, context.generator)
        weight = self.adversarial_weight * linear_ramp(context.step, context.steps, self.ramp)
        total = labeled_ce + weight * divergence + self.entropy_weight * unsureness
        return Losses(total, {"labeled_ce": labeled_ce, "adversarial_kl": divergence, "entropy": unsureness})

    def _divergence(self, model: nn.Module, images: Tensor, generator: torch.Generator) -> Tensor:
        """The mean KL(q ‖ q(u + r)) for the adversarial r of length ε; q and r are constants.

        KL is least at r = 0, so that near 0 it is r·Hr/2, and r must point along the first eigenvector of its Hessian
        H. A power iteration is d ← Hd / ‖Hd‖, and Hd is the gradient at ξd, divided by ξ.
        """
        with torch.no_grad():  # alone, as the perturbed ones below: with other images, BatchNorm would move q
            targets = model(images).logits.softmax(1)
        direction = _unit(torch.randn(images.shape, generator=generator).to(images.device))
        for _ in range(self.power_iterations):
            nearby = (self.xi * direction).requires_grad_()
            cost = kl_divergence(perturbed_logits(model, images, nearby), targets).sum()
            (slope,) = torch.autograd.grad(cost, nearby)
            direction = _unit(slope)
        return kl_divergence(perturbed_logits(model, images, self.epsilon * direction), targets).mean()


def _unit(images: Tensor) -> Tensor:
    """Each image divided by its Euclidean length; an image of zeros stays."""
    return l2_normalized(images.flatten(1)).view(images.shape)
