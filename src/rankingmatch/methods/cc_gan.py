"""CC-GAN (Denton et al., 2016): the classifier also tells real images from images with generated parts."""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option
from rankingmatch.methods.passes import joint_logits, running_statistics_kept
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task, register_method
from rankingmatch.networks import Classifier, InpaintingGenerator


@register_method("cc-gan", preset={"mu": 1})
class CCGAN(Method):
    """The network discriminates: D(x) = Z / (Z + 1) is the probability that x is real, Z = Σ_k exp(logit k).

    That is a softmax over the classes and a further one, "generated", whose logit is 0. The generator is a part of the
    method. Both are trained by one backward pass, each by its own loss: the images are constants in the loss of the
    discriminator, and the weights of the discriminator in that of the generator.
    """

    reference = "Denton 2016"
    good_for = "a baseline that generates images"
    row = ("weak, inpainted", "", "adversarial inpainting")
    unlabeled_views = ("weak",)
    adversarial_weight: float = option(0.1, "Weight of telling real from generated images.", interval="[0, inf)")
    whole_weight: float = option(0.0, "Weight of whole generated images; 1 is CC-GAN².", interval="[0, inf)")
    hole: float = option(0.5, "Side of the hole, as a fraction of the image's sides.", interval="(0, 1]")

    def prepare(self, task: Task) -> None:
        """Create the generator."""
        if not isinstance(task.model, Classifier):
            raise ConfigError(f"the method cc-gan generates images; it needs {setting('tune')} all")
        self.generator = InpaintingGenerator(channels=task.model.mean.shape[1])

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ [L_real + L_generated(x_I) + α L_generated(x_G)] + L_G."""
        (labeled,), (weak,) = batch.labeled, batch.unlabeled
        kept = draw_holes(weak, self.hole, context.generator)
        whole = self.generator(weak, kept)
        inpainted = torch.where(kept, weak, whole)
        generated = torch.cat([inpainted, whole]) if self.whole_weight else inpainted  # x_I and x_G
        labeled_logits, real_logits = joint_logits(model, labeled, weak)
        constants = {name: parameter.detach() for name, parameter in model.named_parameters()}
        with running_statistics_kept(model):  # predictions are made for real images only
            generated_logits = model(generated.detach()).logits
            fooled_logits = functional_call(model, constants, (generated,)).logits
        labeled_ce = F.cross_entropy(labeled_logits, batch.labels)
        # D is the logistic function of ln Z: -ln D = softplus(-ln Z), and -ln(1 - D) = softplus(ln Z).
        real = F.softplus(-real_logits.logsumexp(1)).mean()
        detected = self._weighted(F.softplus(generated_logits.logsumexp(1)), len(weak))
        fooled = self._weighted(F.softplus(-fooled_logits.logsumexp(1)), len(weak))
        total = labeled_ce + self.adversarial_weight * (real + detected) + fooled
        return Losses(total, {"labeled_ce": labeled_ce, "real": real, "generated": detected, "generator": fooled})

    def _weighted(self, costs: Tensor, count: int) -> Tensor:
        """The mean cost of x_I, the first `count` images, plus α times that of x_G."""
        return (costs[:count].sum() + self.whole_weight * costs[count:].sum()) / count


def draw_holes(images: Tensor, hole: float, generator: torch.Generator) -> Tensor:
    """Draw a rectangle for each image, anywhere inside of it; booleans (n, 1, h, w), False within."""
    inside = []
    for length in images.shape[2:]:
        side = max(1, round(hole * length))
        start = torch.randint(length - side + 1, (len(images), 1), generator=generator)
        position = torch.arange(length)
        inside.append((position >= start) & (position < start + side))
    vertical, horizontal = inside
    return ~(vertical[:, None, :, None] & horizontal[:, None, None, :]).to(images.device)
