"""Stacked what-where autoencoder (Zhao et al., 2015): a decoder reconstructs images from pooled maps and switches."""

import torch
from torch import nn
from torch.nn import functional as F

from rankingmatch.core.distributed import gathered, scattered
from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task, register_method
from rankingmatch.networks import Classifier, WhatWhereEncoder
from rankingmatch.networks.classifier import at_least_float32


@register_method("swwae", preset={"mu": 1, "network": "swwae-small"}, dataset_presets={"stl10": {"network": "swwae"}})
class SWWAE(Method):
    """Cross-entropy of labeled images; reconstruction of all images, and of the inputs of all stages of the network."""

    reference = "Zhao 2015"
    good_for = "a baseline that reconstructs images"
    row = ("weak", "", "reconstruction from pooling switches")
    unlabeled_views = ("weak",)
    reconstruction_weight: float = option(0.3, "λ_rec: weight of the reconstructed images.", interval="[0, inf)")
    intermediate_weight: float = option(0.3, "λ_M: weight of the reconstructed intermediate maps.", interval="[0, inf)")

    def prepare(self, task: Task) -> None:
        """Create the decoder, which mirrors the network."""
        if not (isinstance(task.model, Classifier) and isinstance(task.model.backbone, WhatWhereEncoder)):
            raise ConfigError(
                "the method swwae trains all of a network with pooling switches; set "
                f"{setting('network')} to swwae or swwae-small, and {setting('tune')} to all"
            )
        self.decoder = task.model.backbone.decoder()

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_rec · mean (x - x̃)² + λ_M Σ_m mean (x_m - x̃_m)², over labeled and unlabeled images x."""
        assert isinstance(model, Classifier)
        assert isinstance(model.backbone, WhatWhereEncoder)
        images = torch.cat([*batch.labeled, *batch.unlabeled])
        # Each of several processes computes its own rows, as in a call of the model.
        own = model.normalized(scattered(images))
        logits, pooled = model.backbone.encode(own)
        inputs = [own, *(maps.what for maps in pooled[:-1])]
        of_images, *of_stages = (  # mean squared errors (n,)
            (at_least_float32(whole) - at_least_float32(again)).square().flatten(1).mean(1)
            for whole, again in zip(inputs, self.decoder(pooled), strict=True)
        )
        rows = (at_least_float32(logits), of_images, sum(of_stages, start=torch.zeros_like(of_images)))
        logits, of_images, of_maps = (gathered(one, len(images)) for one in rows)
        labeled_ce = F.cross_entropy(logits[: len(batch.labels)], batch.labels)
        image_l2, maps_l2 = of_images.mean(), of_maps.mean()
        total = labeled_ce + self.reconstruction_weight * image_l2 + self.intermediate_weight * maps_l2
        return Losses(total, {"labeled_ce": labeled_ce, "image_l2": image_l2, "maps_l2": maps_l2})
