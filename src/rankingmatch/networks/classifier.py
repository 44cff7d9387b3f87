"""A classifier: uint8 images → logits and features, with the input normalization as part of the model."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rankingmatch.core.distributed import gathered, scattered
from rankingmatch.core.errors import RunError

Tune = Literal["all", "top", "head"]


class Output(NamedTuple):
    """The output of a model for a batch.

    Attributes
    ----------
    logits : Tensor
        Logits (n, classes).
    features : Tensor
        The features (n, width) that the head takes; the logits if the network returns logits only.
    """

    logits: Tensor
    features: Tensor


class Classifier(nn.Module):
    """A network with its input normalization: uint8 images → `Output`.

    If `divided` is set, every process calls the model with the same images, computes the outputs of its own rows, and
    gets the outputs of all.

    Parameters
    ----------
    backbone : torch.nn.Module
        Normalized float images (n, c, h, w) → logits (n, classes), or (logits, features (n, width)).
    mean, std : Tensor
        Mean and standard deviation of each channel (c,), on the scale 0 to 1.
    """

    divided = False
    tune: Tune = "all"
    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.backbone = backbone
        self.register_buffer("mean", mean.float().view(1, -1, 1, 1))
        self.register_buffer("std", std.float().view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Output:
        """Compute the output for images (n, c, h, w) with values 0 to 255, of any dtype.

        If a part of the network is frozen, floating-point inputs are `maps` instead.
        """
        values = self._output(scattered(images) if self.divided else images)
        if self.divided:
            values = tuple(gathered(own, len(images)) for own in values)
        return Output(values[0], values[-1])

    def normalized(self, images: Tensor) -> Tensor:
        """The input of the network for images (n, c, h, w) with values 0 to 255."""
        # Change the memory format while a value takes one byte.
        images = images.contiguous(memory_format=torch.channels_last)
        return (images.float() / 255 - self.mean) / self.std

    def _output(self, images: Tensor) -> tuple[Tensor, ...]:
        """Logits and features of images or maps, or logits only."""
        if self.takes_maps and images.is_floating_point():
            maps = images.float().contiguous(memory_format=torch.channels_last)
            result = self.backbone.upper(maps)  # type: ignore[operator]
        else:
            result = self.backbone(self.normalized(images))
        return tuple(map(at_least_float32, result if isinstance(result, tuple) else (result,)))

    @property
    def takes_maps(self) -> bool:
        """Whether floating-point inputs are maps: outputs of the frozen part of the network."""
        return self.tune != "all"

    def maps(self, images: Tensor) -> Tensor:
        """The output of the frozen part of the network for images (n, c, h, w) with values 0 to 255."""
        return self.backbone.lower(self.normalized(images))  # type: ignore[operator,no-any-return]

    def frozen_names(self) -> set[str]:
        """The names, in `state_dict`, of the tensors of the frozen part of the network, with the normalization."""
        modules = set(self.backbone.frozen_modules()) if self.takes_maps else set()  # type: ignore[operator]
        prefixes = tuple(f"{name}." for name, module in self.named_modules() if module in modules)
        return {name for name in self.state_dict() if name.startswith(prefixes) or name in ("mean", "std")}


def at_least_float32(values: Tensor) -> Tensor:
    """Half-precision outputs in float32, which probabilities and losses need."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


# --- arrays of images: the package says what the parameters are ----------------------------------------------


def channel_statistics(images: np.ndarray, rows: np.ndarray, most: int = 10_000) -> tuple[Tensor, Tensor]:
    """Compute mean (c,) and standard deviation (c,), at least 0.001, of each channel, on the scale 0 to 1.

    They are those of some `rows` (n,) of the images; if there are more than `most`, of evenly spaced ones.
    """
    rows, channels = rows[:: max(1, len(rows) // most)], images.shape[3]
    counts = np.zeros((channels, 256), np.int64)  # of each value: copies of many large images would not fit into memory
    for start in range(0, len(rows), 256):
        chosen = images[rows[start : start + 256]]
        for channel in range(channels):
            counts[channel] += np.bincount(chosen[..., channel].ravel(), minlength=256)
    values, shares = np.arange(256) / 255, counts / counts.sum(1, keepdims=True)
    mean = shares @ values
    std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(1))
    return torch.from_numpy(mean).float(), torch.from_numpy(np.maximum(std, 1e-3)).float()


def to_tensor(images: np.ndarray, device: torch.device) -> Tensor:
    """Copy images, which may be read-only, to a device as a uint8 tensor (n, c, h, w)."""
    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).to(device)


@torch.no_grad()
def batched_outputs(model: nn.Module, images: np.ndarray, device: torch.device, size: int = 512) -> Iterator[Output]:
    """Run a model over images in evaluation mode, batch by batch; yields outputs on the device."""
    was_training = model.training
    model.eval()
    for start in range(0, len(images), size):
        yield model(to_tensor(images[start : start + size], device))
    model.train(was_training)


def predict_logits(model: nn.Module, images: np.ndarray, device: torch.device, size: int = 512) -> np.ndarray:
    """Compute the logits (n, classes) of at least one image."""
    return np.concatenate([output.logits.cpu().numpy() for output in batched_outputs(model, images, device, size)])


def predict_probabilities(
    model: nn.Module,
    images: np.ndarray,
    device: torch.device,
    size: int = 512,
    dtype: torch.dtype | None = None,
) -> np.ndarray:
    """Compute the class probabilities (n, classes) of at least one image; `RunError` if they are not finite.

    `dtype` is the precision of the softmax, by default that of the logits.
    """
    batches = batched_outputs(model, images, device, size)
    return _finite(np.concatenate([output.logits.softmax(1, dtype=dtype).cpu().numpy() for output in batches]))


def predict_logits_and_features(
    model: nn.Module, images: np.ndarray, device: torch.device, size: int = 512
) -> tuple[np.ndarray, np.ndarray | None]:
    """Compute the logits (n, classes) and the features (n, width) of at least one image in one pass.

    If the network returns logits only, the features are None. `RunError` if the logits are not finite.
    """
    logits, features = [], []
    for output in batched_outputs(model, images, device, size):
        logits.append(output.logits.cpu().numpy())
        if output.features is not output.logits:
            features.append(output.features.cpu().numpy())
    return _finite(np.concatenate(logits)), np.concatenate(features) if features else None


def _finite(outputs: np.ndarray) -> np.ndarray:
    if not np.isfinite(outputs).all():
        raise RunError("the outputs of the model are not finite: its weights are damaged, or its training diverged")
    return outputs
