"""A classifier: uint8 images → logits and features, with its input normalization; its head, and its frozen part."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from rankingmatch.core.distributed import gathered, scattered
from rankingmatch.core.errors import ConfigError, RunError, setting

Tune = Literal["all", "top", "head"]
CENTER = "center"


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
        own = scattered(images) if self.divided else images
        if self.takes_maps and own.is_floating_point():
            maps = own.float().contiguous(memory_format=torch.channels_last)
            result = self.backbone.upper(maps)  # type: ignore[operator]
        else:
            result = self.backbone(self.normalized(own))
        values = [at_least_float32(value) for value in (result if isinstance(result, tuple) else (result,))]
        if self.divided:
            values = [gathered(value, len(images)) for value in values]
        return Output(values[0], values[-1])

    def normalized(self, images: Tensor) -> Tensor:
        """The input of the network for images (n, c, h, w) with values 0 to 255."""
        # Change the memory format while a value takes one byte.
        images = images.contiguous(memory_format=torch.channels_last)
        return (images.float() / 255 - self.mean) / self.std

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


# --- models with timm's interface ----------------------------------------------------------------------------


class TimmBackbone(nn.Module):
    """A model with timm's interface as a backbone that returns logits and features.

    Images are resized to the model's input size, from its `pretrained_cfg`, or to the given side.
    """

    def __init__(self, model: Any, side: int | None = None) -> None:
        super().__init__()
        self.model = model
        size = tuple(_cfg(model).get("input_size") or ())[-2:]
        self.size: tuple[int, int] | None = (side, side) if side else (int(size[0]), int(size[1])) if size else None

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute logits (n, classes) and features (n, num_features) of normalized images (n, c, h, w)."""
        if self.size is not None and images.shape[-2:] != self.size:
            smaller = images.shape[-2] > self.size[0] or images.shape[-1] > self.size[1]
            images = F.interpolate(images, self.size, mode="bilinear", antialias=smaller)
        maps = self.model.forward_features(images)
        features = self.model.forward_head(maps, pre_logits=True)
        return self.model.forward_head(maps), features.flatten(1)


def adapted(network: nn.Module, side: int | None = None) -> nn.Module:
    """Wrap a network with timm's interface in `TimmBackbone`; return any other unchanged."""
    has_parts = all(callable(getattr(network, name, None)) for name in ("forward_features", "forward_head"))
    return TimmBackbone(network, side) if has_parts else network


def inner_network(backbone: nn.Module) -> tuple[nn.Module, str]:
    """The network without the adapter, and the prefix of its parameter names in the adapter."""
    return (backbone.model, "model.") if isinstance(backbone, TimmBackbone) else (backbone, "")


def _cfg(model: Any) -> Mapping[str, Any]:
    """The `pretrained_cfg` of a timm model, or nothing."""
    cfg = getattr(model, "pretrained_cfg", None)
    return cfg if isinstance(cfg, Mapping) else {}


def own_normalization(backbone: nn.Module, channels: int) -> tuple[Tensor, Tensor] | None:
    """Mean and standard deviation that a backbone was pretrained with, averaged for grayscale; None if unknown.

    A network declares them in timm's `pretrained_cfg`, or as the attributes `native_mean` and `native_std`.
    """
    network, _ = inner_network(backbone)
    values = [_cfg(network).get(name) or getattr(network, f"native_{name}", None) for name in ("mean", "std")]
    if not all(values):
        return None
    mean, std = (torch.tensor(value, dtype=torch.float32) for value in values)
    if len(mean) != channels:
        mean, std = mean.mean().repeat(channels), std.mean().repeat(channels)
    return mean, std


# --- the head ------------------------------------------------------------------------------------------------


def head_parameters(backbone: nn.Module) -> set[str]:
    """Find the parameters of the head of a backbone, which maps features to logits.

    They are those of the classifier that timm's `pretrained_cfg` names, or of the last linear layer; an empty set if
    there is none.
    """
    inner, prefix = inner_network(backbone)
    named = _cfg(inner).get("classifier") or ()
    layers = (named,) if isinstance(named, str) else tuple(named)
    parameters = [name for name, _ in inner.named_parameters()]
    head = {name for name in parameters if name.startswith(tuple(f"{layer}." for layer in layers))}
    if not head:
        linear = [name for name, module in inner.named_modules() if isinstance(module, nn.Linear)]
        head = {name for name in parameters if linear and name.rpartition(".")[0] == linear[-1]}
    return {prefix + name for name in head}


class NormalizedLinear(nn.Linear):
    """A linear layer on features that are centered and scaled to unit length: W (f - c) / ‖f - c‖ + b.

    So the scale of pretrained features does not become confidence.

    Attributes
    ----------
    center : Tensor
        c (width,), a buffer.
    """

    center: Tensor

    def __init__(self, width: int, classes: int) -> None:
        super().__init__(width, classes)
        self.register_buffer(CENTER, torch.zeros(width))

    def forward(self, features: Tensor) -> Tensor:
        """Map features (n, width) to logits (n, classes)."""
        return super().forward(F.normalize(features - self.center))


def normalize_head(backbone: nn.Module) -> NormalizedLinear:
    """Replace the head of a backbone by a `NormalizedLinear` with the same weights, unless it is one already.

    `ConfigError` if its last layer is not linear.
    """
    paths = {name.rpartition(".")[0] for name in head_parameters(backbone)}
    path = paths.pop() if len(paths) == 1 else ""
    head = backbone.get_submodule(path) if path else None
    if isinstance(head, NormalizedLinear):
        return head
    if not isinstance(head, nn.Linear) or head.bias is None:
        raise ConfigError(f"{setting('initial_head')} fitted needs a network with a linear head; use random")
    normalized = NormalizedLinear(head.in_features, head.out_features).to(head.weight.device)
    normalized.weight, normalized.bias = head.weight, head.bias
    parent, _, attribute = path.rpartition(".")
    setattr(backbone.get_submodule(parent), attribute, normalized)
    return normalized


def has_normalized_head(names: Iterable[str]) -> bool:
    """Whether these names of tensors are those of a network with a `NormalizedLinear`."""
    return any(name.rpartition(".")[2] == CENTER for name in names)


# --- what is frozen ------------------------------------------------------------------------------------------


def freeze(model: Classifier, tune: Tune) -> None:
    """Freeze the part of a model that is not tuned, so that it also takes maps of that part.

    `tune` is what stays trainable: "all", "top" or "head". `ConfigError` if the network has no such parts.
    """
    if tune == "all":
        return
    if not all(hasattr(model.backbone, name) for name in ("lower", "upper", "frozen_modules")):
        raise ConfigError(
            f"{setting('tune')} {tune} needs a network with a lower and an upper part, such as efficientnet-lite0; "
            "use all"
        )
    model.tune = tune
    model.backbone.tune = tune  # type: ignore[assignment]
    for module in model.backbone.frozen_modules():  # type: ignore[operator]
        module.requires_grad_(False)


def set_batchnorm_momentum(network: nn.Module, momentum: float) -> None:
    """Set the `momentum` of every BatchNorm layer: the weight of a new batch in the running statistics."""
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.momentum = momentum


def freeze_batchnorm(network: nn.Module) -> None:
    """Fix the running statistics of every BatchNorm layer.

    The layers normalize with their running statistics and do not update them, also in training mode and in copies of
    the network: with statistics of pretraining, small batches need not estimate them. Scale and shift stay trainable,
    and the network's `state_dict` has the same names.
    """
    for module in network.modules():
        if isinstance(module, _BatchNorm) and not isinstance(module, _Frozen):
            kind: Any = type(module)
            module.__class__ = _frozen(kind)
            module.eval()


class _Frozen(nn.Module):
    """A layer that stays in evaluation mode."""

    def train(self, mode: bool = True) -> Self:
        return super().train(False)

    def __reduce__(self) -> tuple[Any, ...]:
        # The class is made at run time, so that copy and pickle need the one that it was made from.
        return _empty, (type(self).__mro__[2],), self.__dict__


@cache
def _frozen(kind: Any) -> Any:
    """The subclass of a BatchNorm class whose layers stay in evaluation mode."""
    return type(f"Frozen{kind.__name__}", (_Frozen, kind), {})


def _empty(kind: Any) -> Any:
    frozen = _frozen(kind)
    return frozen.__new__(frozen)
