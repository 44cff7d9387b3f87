"""Virtual adversarial training (Miyato et al., 2018) with entropy minimization."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.options import option
from rankingmatch.losses import entropy, kl_divergence, l2_normalized
from rankingmatch.methods.passes import joint_logits, perturbed_logits, running_statistics_kept
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, register_method, shared


@register_method("vat", preset={"mu": 1}, dataset_presets={"svhn": {"epsilon": 1.0}})
class VAT(Method):
    """Consistency under the small perturbation that changes the prediction most, and low entropy."""

    reference = "Miyato 2018"
    good_for = "inputs without known augmentations"
    row = ("weak, adversarial", "", "entropy minimization")
    unlabeled_views = ("weak",)
    epsilon: float = option(6.0, "ε: Euclidean norm of the perturbation of a normalized image.", interval="[0, inf)")
    xi: float = option(1e-3, "ξ: finite difference; the paper's 1e-6 is too small for float32.", interval="(0, inf)")
    power_iterations: int = option(1, "Power iterations that find the perturbation's direction.", interval="[0, 100]")
    adversarial_weight: float = option(0.3, "Weight of the KL divergence under the perturbation.", interval="[0, inf)")
    entropy_weight: float = option(0.06, "Weight of the entropy of the predictions.", interval="[0, inf)")
    ramp: float = shared("ramp")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_v(s) (1/μB) Σ KL(q ‖ q(u + r)) + λ_e (1/μB) Σ H(q)."""
        (labeled,), (weak,) = batch.labeled, batch.unlabeled
        labeled_logits, weak_logits = joint_logits(model, labeled, weak)
        labeled_ce = F.cross_entropy(labeled_logits, batch.labels)
        mean_entropy = entropy(weak_logits).mean()
        with running_statistics_kept(model):
            divergence = self._divergence(model, weak, context.generator)
        weight = self.adversarial_weight * context.ramp(self.ramp)
        total = labeled_ce + weight * divergence + self.entropy_weight * mean_entropy
        return Losses(total, {"labeled_ce": labeled_ce, "adversarial_kl": divergence, "entropy": mean_entropy})

    def _divergence(self, model: nn.Module, images: Tensor, generator: torch.Generator) -> Tensor:
        """The mean of KL(q ‖ q(u + r)) for the adversarial r of norm ε; q and r are constants.

        KL has its minimum at r = 0, so near 0 it is r·Hr/2 with its Hessian H, and r must be along the first
        eigenvector of H. A power iteration is d ← Hd / ‖Hd‖, where Hd is the gradient at ξd divided by ξ.
        """
        with torch.no_grad():  # without the labeled images, as below: they would change BatchNorm's statistics
            targets = model(images).logits.softmax(1)
        direction = _unit(torch.randn(images.shape, generator=generator).to(images.device))
        for _ in range(self.power_iterations):
            nearby = (self.xi * direction).requires_grad_()
            cost = kl_divergence(perturbed_logits(model, images, nearby), targets).sum()
            (slope,) = torch.autograd.grad(cost, nearby)
            direction = _unit(slope)
        return kl_divergence(perturbed_logits(model, images, self.epsilon * direction), targets).mean()


def _unit(images: Tensor) -> Tensor:
    """Divide each image by its Euclidean norm; an image of zeros stays zero."""
    return l2_normalized(images.flatten(1)).view(images.shape)
