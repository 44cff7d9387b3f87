"""A classifier: uint8 images → logits and features, with the normalization inside."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch.core.distributed import gathered, scattered


class Output(NamedTuple):
    """What a model says about a batch."""

    logits: Tensor  # (n, classes)
    features: Tensor  # (n, width): the representation the head reads; the logits if a network hides it


class Classifier(nn.Module):
    """uint8 images → logits and features; the normalisation is part of the model.

    Where it is `divided`, every process calls it with the same images, computes its share, and gets all outputs.
    """

    divided = False
    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.backbone = backbone
        self.register_buffer("mean", mean.float().view(1, -1, 1, 1))
        self.register_buffer("std", std.float().view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Output:
        """(n, c, h, w) images with values 0…255 of any type."""
        if not self.divided:
            return self._outputs(images)
        own = self._outputs(scattered(images))
        logits = gathered(own.logits, len(images))
        return Output(logits, logits if own.features is own.logits else gathered(own.features, len(images)))

    def _outputs(self, images: Tensor) -> Output:
        # Put in order while a value is one byte.
        images = images.contiguous(memory_format=torch.channels_last)
        result = self.backbone((images.float() / 255 - self.mean) / self.std)
        return Output(*map(_full, result)) if isinstance(result, tuple) else Output(*[_full(result)] * 2)


def _full(values: Tensor) -> Tensor:
    """Outputs of a network that computes in half precision, in whole precision: probabilities and losses need it."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def set_batchnorm_momentum(network: nn.Module, momentum: float) -> None:
    """How fast BatchNorm's running statistics follow the batches."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = momentum


def channel_statistics(images: np.ndarray, rows: np.ndarray, most: int = 10_000) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, on the scale 0…1, from evenly spaced ones of these rows."""
    chosen = images[rows[:: max(1, len(rows) // most)]].astype(np.float64) / 255
    mean, std = chosen.mean((0, 1, 2)), chosen.std((0, 1, 2))
    return torch.from_numpy(mean).float(), torch.from_numpy(np.maximum(std, 1e-3)).float()


@torch.no_grad()
def outputs(model: nn.Module, images: np.ndarray, device: torch.device, size: int = 512) -> Iterator[Output]:
    """A model's outputs for (n, h, w, c) uint8 images in evaluation mode, batch by batch."""
    was_training = model.training
    model.eval()
    for start in range(0, len(images), size):
        yield model(to_tensor(images[start : start + size], device))
    model.train(was_training)


def to_tensor(images: np.ndarray, device: torch.device) -> Tensor:
    """(n, h, w, c) uint8 array → (n, c, h, w) uint8 tensor on the device; always a copy, for files are read-only."""
    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).to(device)
