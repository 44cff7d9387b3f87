"""Pretrained backbones: models of timm, and weights from safetensors files."""

import importlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.errors import ConfigError, first_line, setting
from rankingmatch.core.untrusted import BadFileError, read_tensor_header, read_tensors, require_finite

__all__ = [
    "TIMM_PREFIX",
    "TimmBackbone",
    "adapted",
    "head_parameters",
    "input_side",
    "load_weights",
    "own_normalization",
    "timm_backbone",
]

log = logging.getLogger(__name__)

TIMM_PREFIX = "timm:"


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


def timm_backbone(name: str, channels: int, classes: int, *, pretrained: bool) -> nn.Module:
    """Make the model ``timm:NAME``, or ``timm:NAME@SIDE`` for images of another side than the model's own."""
    model_name, at, side = name.removeprefix(TIMM_PREFIX).partition("@")
    if not model_name or (at and not (side.isdecimal() and int(side) > 0)):
        raise ConfigError(f"network '{name}': write timm:NAME, or timm:NAME@SIDE with a side in pixels")
    try:
        timm: Any = importlib.import_module("timm")
    except ModuleNotFoundError as error:
        reason = _reason(error)
        raise ConfigError(f"network '{name}' needs timm ({reason}): pip install 'rankingmatch[timm]'") from error
    except Exception as error:  # an incompatible torchvision may raise anything
        raise ConfigError(
            f"network '{name}' needs timm, which cannot be imported ({_reason(error)}); install a torchvision that was "
            f"built for torch {torch.__version__}"
        ) from error
    try:
        model = timm.create_model(model_name, pretrained=pretrained, num_classes=classes, in_chans=channels)
        if at and hasattr(model, "set_input_size"):  # a transformer, whose position embeddings have a fixed size
            model.set_input_size(img_size=(int(side), int(side)))
    except Exception as error:  # an unknown name or size, no connection, no weights
        raise ConfigError(f"network '{name}' cannot be built ({_reason(error)})") from error
    backbone = adapted(model, int(side) if at else None)
    if not isinstance(backbone, TimmBackbone):
        raise ConfigError(f"network '{name}' is not an image classifier: it has no forward_features and forward_head")
    return backbone


def input_side(network: str) -> int | None:
    """Find the image size that a network was pretrained with.

    Parameters
    ----------
    network : str
        The name of the network.

    Returns
    -------
    int or None
        The side in pixels; None if the network has no preferred size.
    """
    if not network.startswith(TIMM_PREFIX):
        return None
    backbone = timm_backbone(network, channels=3, classes=2, pretrained=False)
    return min(backbone.size) if isinstance(backbone, TimmBackbone) and backbone.size else None


def own_normalization(backbone: nn.Module, channels: int) -> tuple[Tensor, Tensor] | None:
    """Mean and standard deviation that a backbone was pretrained with, averaged for grayscale; None if unknown.

    A network declares them in timm's `pretrained_cfg`, or as the attributes `native_mean` and `native_std`.
    """
    network = _inner(backbone)[0]
    cfg = _cfg(network)
    values = [cfg.get(name) or getattr(network, f"native_{name}", None) for name in ("mean", "std")]
    if not all(values):
        return None
    mean, std = (torch.tensor(value, dtype=torch.float32) for value in values)
    if len(mean) != channels:
        mean, std = mean.mean().repeat(channels), std.mean().repeat(channels)
    return mean, std


def head_parameters(backbone: nn.Module) -> set[str]:
    """Find the parameters of the head, which maps features to logits.

    Parameters
    ----------
    backbone : torch.nn.Module
        The network.

    Returns
    -------
    set of str
        Names of parameters: those of the classifier that timm's `pretrained_cfg` names, or of the last linear layer.
        Empty if there is none.
    """
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
    """Load the weights of a safetensors file into a backbone; return the normalization if the file has one.

    The file has the parameter names of the network, as those of timm do, or was saved by this package. All tensors must
    fit except for those of a head of a different size or kind, which is initialized randomly, with a warning.
    """
    given, normalization = _read(Path(path))
    inner, prefix = _inner(backbone)
    if normalization is not None:  # saved by this package, with the names of the adapter
        given = {name.removeprefix(prefix): value for name, value in given.items()}
    own = inner.state_dict()
    head = {name.removeprefix(prefix) for name in head_parameters(backbone)}
    centers = {
        name for name in given.keys() - own.keys() if name.endswith(".center")
    }  # of a head on normalized features
    given = {name: value for name, value in given.items() if name not in centers}
    head_fits = not centers and all(name in given and given[name].shape == own[name].shape for name in head)
    reset = set() if head_fits else head
    problems = _mismatches({name: value for name, value in own.items() if name not in reset}, given, own)
    if problems:
        raise ConfigError(f"{setting('weights')}: {path} does not fit the network '{network}': {problems}")
    inner.load_state_dict({name: own[name] if name in reset else given[name] for name in own})
    if reset:
        names = ", ".join(sorted(reset))
        log.warning("%s: the head has a different size or kind and is initialized randomly: %s", path, names)
    return normalization


def _mismatches(needed: dict[str, Tensor], given: dict[str, Tensor], known: dict[str, Tensor]) -> str:
    """What is wrong with the given weights, or an empty string."""
    both = needed.keys() & given.keys()
    wrong = {
        "missing": sorted(needed.keys() - given.keys()),
        "unknown": sorted(given.keys() - known.keys()),
        "of a different shape": sorted(name for name in both if needed[name].shape != given[name].shape),
    }
    return "; ".join(f"{len(names)} {kind}, such as {names[0]}" for kind, names in wrong.items() if names)


def _read(path: Path) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor] | None]:
    """The weights of a file by name, and the normalization if it was saved by this package."""
    try:
        saved_here = "rankingmatch" in read_tensor_header(path).metadata
        tensors = read_tensors(path)
        require_finite(tensors)
    except FileNotFoundError:
        raise ConfigError(f"{setting('weights')}: there is no file {path}") from None
    except (OSError, BadFileError) as error:
        raise ConfigError(f"{setting('weights')}: {path} is not a safetensors file ({_reason(error)})") from error
    if not (saved_here and "mean" in tensors and "std" in tensors):
        return tensors, None
    weights = {name.removeprefix("backbone."): value for name, value in tensors.items() if name.startswith("backbone.")}
    return weights, (tensors["mean"].flatten(), tensors["std"].flatten())


def _inner(backbone: nn.Module) -> tuple[nn.Module, str]:
    """The network without the adapter, and the prefix of its parameter names in the adapter."""
    return (backbone.model, "model.") if isinstance(backbone, TimmBackbone) else (backbone, "")


def _cfg(model: Any) -> Mapping[str, Any]:
    """The `pretrained_cfg` of a timm model, or nothing."""
    cfg = getattr(model, "pretrained_cfg", None)
    return cfg if isinstance(cfg, Mapping) else {}


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
