"""Parts of a network that is fine-tuned: what is frozen, its head, its input normalization; models like timm's."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.networks.classifier import Classifier, Tune

CENTER = "center"

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
    names = {name.rpartition(".")[0] for name in head_parameters(backbone)}
    head = backbone.get_submodule(names.pop()) if len(names) == 1 else None
    if isinstance(head, NormalizedLinear):
        return head
    if not isinstance(head, nn.Linear) or head.bias is None:
        raise ConfigError(f"{setting('initial_head')} fitted needs a network with a linear head; use random")
    normalized = NormalizedLinear(head.in_features, head.out_features).to(head.weight.device)
    normalized.weight, normalized.bias = head.weight, head.bias
    path = next(name for name, module in backbone.named_modules() if module is head)
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
