"""Stacked what-where autoencoder (Zhao et al., 2015): a decoder reconstructs images from pooled maps and switches."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task
from rankingmatch.networks import Classifier, WhatWhereEncoder
from rankingmatch.networks.classifier import at_least_float32

__all__ = ["SWWAE"]


@dataclass(eq=False)
class SWWAE(Method):
    """Cross-entropy of labeled images; reconstruction of all images, and of the inputs of all stages of the network."""

    unlabeled_views: ClassVar[tuple[str, ...]] = ("weak",)
    reconstruction_weight: float = option(
        0.3, "λ_rec: weight of the mean squared error of reconstructed images.", interval="[0, inf)"
    )
    intermediate_weight: float = option(
        0.3, "λ_M: weight of the mean squared errors of reconstructed intermediate maps.", interval="[0, inf)"
    )

    def prepare(self, task: Task) -> None:
        """Create the decoder, which mirrors the network."""
        if not isinstance(task.network, WhatWhereEncoder):
            raise ConfigError(
                f"the method swwae needs a network with pooling switches; set {setting('network')} to swwae or "
                "swwae-small"
            )
        self.decoder = task.network.decoder()

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_rec · mean (x - x̃)² + λ_M Σ_m mean (x_m - x̃_m)², over labeled and unlabeled images x."""
        assert isinstance(model, Classifier)
        images = torch.cat([*batch.labeled, *batch.unlabeled])
        logits, of_images, of_maps = model.on_rows(partial(self._logits_and_errors, model), images)
        labeled_ce = F.cross_entropy(logits[: len(batch.labels)], batch.labels)
        image_l2, maps_l2 = of_images.mean(), of_maps.mean()
        total = labeled_ce + self.reconstruction_weight * image_l2 + self.intermediate_weight * maps_l2
        return Losses(total, {"labeled_ce": labeled_ce, "image_l2": image_l2, "maps_l2": maps_l2})

    def _logits_and_errors(self, model: Classifier, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (n, classes); mean squared errors of the images (n,), and of the maps, summed over stages (n,)."""
        encoder, images = model.backbone, model.normalized(images)
        assert isinstance(encoder, WhatWhereEncoder)
        logits, pooled = encoder.encode(images)
        inputs = [images, *(maps.what for maps in pooled[:-1])]
        errors = [
            (at_least_float32(whole) - at_least_float32(again)).square().flatten(1).mean(1)
            for whole, again in zip(inputs, self.decoder(pooled), strict=True)
        ]
        return at_least_float32(logits), errors[0], sum(errors[1:], start=torch.zeros_like(errors[0]))
