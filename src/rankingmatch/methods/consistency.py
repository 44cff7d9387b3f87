"""Labels alone, and consistency of the predictions for weak views."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.options import option
from rankingmatch.losses import entropy, kl_divergence, l2_normalized, masked_cross_entropy
from rankingmatch.methods.passes import joint_logits, mean_probabilities, perturbed_logits, running_statistics_kept
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, register_method, shared
from rankingmatch.methods.targets import pseudo_label


@register_method("supervised")
class Supervised(Method):
    """Eq. (2) alone: cross-entropy of the weak views of the labeled images."""

    good_for = "the error without unlabeled images"
    row = ("weak", "", "baseline")
    unlabeled_views = ()

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s^CE."""
        loss = F.cross_entropy(model(batch.labeled[0]).logits, batch.labels)
        return Losses(loss, {"labeled_ce": loss})


@register_method("pseudo-label", preset={"mu": 1})
class PseudoLabel(Method):
    """Cross-entropy of confident unlabeled images with their own argmax, with an increasing weight."""

    reference = "Lee 2013"
    good_for = "a baseline without strong augmentation"
    row = ("weak", "threshold", "one view")
    unlabeled_views = ("weak",)
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight")
    ramp: float = shared("ramp")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u(s) (1/μB) Σ 1(confident) H(q̂, q): target and prediction belong to the same view."""
        labeled_logits, weak_logits = joint_logits(model, *batch.labeled, *batch.unlabeled)
        pseudo = pseudo_label(weak_logits.detach(), self.threshold)
        labeled_ce = F.cross_entropy(labeled_logits, batch.labels)
        unlabeled_ce = masked_cross_entropy(weak_logits, pseudo.labels, pseudo.confident)
        total = labeled_ce + self.unlabeled_weight * context.ramp(self.ramp) * unlabeled_ce
        return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)


@register_method("pi-model", preset={"mu": 1})
class PiModel(Method):
    """Squared difference between the softmax of two weak views; the first one is the target."""

    reference = "Laine 2017"
    good_for = "a baseline without strong augmentation"
    row = ("weak", "", "squared L2 between two views")
    unlabeled_views = ("weak", "weak")
    unlabeled_weight: float = shared("unlabeled_weight", 10.0)
    ramp: float = shared("ramp")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u(s) (1/μBC) Σ ‖q - q'‖²; q, the prediction for the first view, has no gradient."""
        labeled, first, second = joint_logits(model, *batch.labeled, *batch.unlabeled)
        labeled_ce = F.cross_entropy(labeled, batch.labels)
        difference = F.mse_loss(second.softmax(1), first.detach().softmax(1))
        total = labeled_ce + self.unlabeled_weight * context.ramp(self.ramp) * difference
        return Losses(total, {"labeled_ce": labeled_ce, "difference": difference})


@register_method("mean-teacher", preset={"mu": 1})
class MeanTeacher(Method):
    """Squared difference between the softmax of the student and of the EMA model, each for its own weak view."""

    reference = "Tarvainen 2017"
    good_for = "a baseline without strong augmentation"
    row = ("weak", "", "squared L2 to the EMA model")
    unlabeled_views = ("weak", "weak")
    unlabeled_weight: float = shared("unlabeled_weight", 50.0)
    ramp: float = shared("ramp")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u(s) (1/μBC) Σ ‖q - q_teacher‖²; the teacher has no gradient."""
        for_student, for_teacher = batch.unlabeled
        # Normalized by its batch, like the student: the running statistics belong to other weights.
        targets = mean_probabilities(context.teacher.train(), [for_teacher])
        context.teacher.eval()
        labeled, student = joint_logits(model, *batch.labeled, for_student)
        labeled_ce = F.cross_entropy(labeled, batch.labels)
        difference = F.mse_loss(student.softmax(1), targets)
        total = labeled_ce + self.unlabeled_weight * context.ramp(self.ramp) * difference
        return Losses(total, {"labeled_ce": labeled_ce, "difference": difference})


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
