"""Backbones that others have trained: timm's models, and weights from safetensors files."""

import importlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.errors import ConfigError

log = logging.getLogger(__name__)

PREFIX = "timm:"


class TimmBackbone(nn.Module):
    """A model with timm's interface as a backbone: its logits, and the features that its head reads.

    Images are resized to the side the model was made for; `pretrained_cfg` has that, and the normalisation.
    """

    def __init__(self, model: Any, side: int | None = None) -> None:
        super().__init__()
        self.model = model
        size = tuple(_cfg(model).get("input_size") or ())[-2:]
        self.size: tuple[int, int] | None = (side, side) if side else (int(size[0]), int(size[1])) if size else None

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised (n, c, h, w) images → logits (n, classes), features (n, num_features)."""
        if self.size is not None and images.shape[-2:] != self.size:
            smaller = images.shape[-2] > self.size[0] or images.shape[-1] > self.size[1]
            images = F.interpolate(images, self.size, mode="bilinear", antialias=smaller)
        maps = self.model.forward_features(images)
        features = self.model.forward_head(maps, pre_logits=True)
        return self.model.forward_head(maps), features.flatten(1)


def adapted(network: nn.Module, side: int | None = None) -> nn.Module:
    """A network with timm's interface behind the adapter; any other as it is."""
    has_parts = all(callable(getattr(network, name, None)) for name in ("forward_features", "forward_head"))
    return TimmBackbone(network, side) if has_parts else network


def timm_backbone(name: str, channels: int, classes: int, *, pretrained: bool) -> nn.Module:
    """`timm:NAME`, or `timm:NAME@SIDE` for images of another side than the model's own."""
    model_name, at, side = name.removeprefix(PREFIX).partition("@")
    if not model_name or (at and not (side.isdecimal() and int(side) > 0)):
        raise ConfigError(f"network '{name}': write timm:NAME, or timm:NAME@SIDE with a side in pixels")
    try:
        timm: Any = importlib.import_module("timm")
    except Exception as error:  # it imports torchvision, which raises what it likes beside another torch
        reason = _first_line(error)
        raise ConfigError(f"network '{name}' needs timm ({reason}): pip install 'rankingmatch[timm]'") from error
    try:
        model = timm.create_model(model_name, pretrained=pretrained, num_classes=classes, in_chans=channels)
    except Exception as error:  # an unknown name, no connection, no such weights
        raise ConfigError(f"network '{name}' cannot be built ({_first_line(error)})") from error
    backbone = adapted(model, int(side) if at else None)
    if not isinstance(backbone, TimmBackbone):
        raise ConfigError(f"network '{name}' has no forward_features and forward_head, so it is no image classifier")
    return backbone


def input_side(network: str) -> int | None:
    """The side in pixels of the images a backbone was made for; None where any will do."""
    if not network.startswith(PREFIX):
        return None
    backbone = timm_backbone(network, channels=3, classes=2, pretrained=False)
    return min(backbone.size) if isinstance(backbone, TimmBackbone) and backbone.size else None


def own_normalisation(backbone: nn.Module, channels: int) -> tuple[Tensor, Tensor] | None:
    """Mean and deviation a backbone was trained with, None if it says nothing; grey images get the colours' average."""
    cfg = _cfg(_inner(backbone)[0])
    if not (cfg.get("mean") and cfg.get("std")):
        return None
    mean, std = (torch.tensor(cfg[name], dtype=torch.float32) for name in ("mean", "std"))
    if len(mean) != channels:
        mean, std = mean.mean().repeat(channels), std.mean().repeat(channels)
    return mean, std


def head_parameters(backbone: nn.Module) -> set[str]:
    """The names of the parameters that turn features into logits: of the named classifier, else of the last linear
    layer."""
    inner, prefix = _inner(backbone)
    named = _cfg(inner).get("classifier") or ()
    names = [named] if isinstance(named, str) else list(named)
    parameters = [name for name, _ in inner.named_parameters()]
    head = {name for name in parameters if any(name.startswith(f"{part}.") for part in names)}
    if not head:
        linear = [name for name, module in inner.named_modules() if isinstance(module, nn.Linear)]
        head = {name for name in parameters if linear and name.rpartition(".")[0] == linear[-1]}
    return {prefix + name for name in head}


def load_weights(backbone: nn.Module, path: str, network: str) -> tuple[Tensor, Tensor] | None:
    """Put the weights of a safetensors file into a backbone; returns the normalisation, where the file has it.

    The file is one of timm's kind, with the network's own names, or a model of ours. All must fit, but for a head of
    another size, which starts anew and is reported.
    """
    given, normalisation = _read(Path(path))
    inner, prefix = _inner(backbone)
    if normalisation is not None:  # a model of ours, which has the adapter's names
        given = {name.removeprefix(prefix): value for name, value in given.items()}
    own = inner.state_dict()
    head = {name.removeprefix(prefix) for name in head_parameters(backbone)}
    fits = all(name in given and given[name].shape == own[name].shape for name in head)
    anew = set() if fits else head
    missing = sorted(own.keys() - given.keys() - anew)
    unknown = sorted(given.keys() - own.keys())
    other = sorted(name for name in own.keys() & given.keys() - anew if own[name].shape != given[name].shape)
    wrong = {"missing": missing, "unknown": unknown, "of another shape": other}
    if any(wrong.values()):
        counts = "; ".join(f"{len(names)} {kind}, such as {names[0]}" for kind, names in wrong.items() if names)
        raise ConfigError(f"--weights {path} does not fit the network '{network}': {counts}")
    inner.load_state_dict({name: own[name] if name in anew else given[name] for name in own})
    if anew:
        log.warning("--weights %s: its head is of another size, and starts anew: %s", path, ", ".join(sorted(anew)))
    return normalisation


def _read(path: Path) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor] | None]:
    """The weights in a file by their names in the network; of one of our models, its normalisation, too."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            ours = "rankingmatch" in (file.metadata() or {})
    except FileNotFoundError:
        raise ConfigError(f"--weights {path}: there is no such file") from None
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise ConfigError(f"--weights {path}: not a safetensors file ({_first_line(error)})") from error
    if not (ours and "mean" in tensors and "std" in tensors):
        return tensors, None
    weights = {name.removeprefix("backbone."): value for name, value in tensors.items() if name.startswith("backbone.")}
    return weights, (tensors["mean"].flatten(), tensors["std"].flatten())


def _inner(backbone: nn.Module) -> tuple[nn.Module, str]:
    """The network itself, without the adapter, and what its names begin with in the adapter."""
    return (backbone.model, "model.") if isinstance(backbone, TimmBackbone) else (backbone, "")


def _cfg(model: Any) -> Mapping[str, Any]:
    cfg = getattr(model, "pretrained_cfg", None)
    return cfg if isinstance(cfg, Mapping) else {}


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
