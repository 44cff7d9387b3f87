"""Networks by name, and classifiers around them.

A network is a factory ``(channels, classes) -> torch.nn.Module``. The module takes normalized float images
(n, channels, height, width) and returns logits (n, classes), or the pair of logits and features (n, width). A factory
that has pretrained weights also takes the keyword `pretrained`.
"""

import importlib
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError, RankingMatchError, first_line, setting, unknown_name
from rankingmatch.core.imports import import_object
from rankingmatch.core.options import option
from rankingmatch.core.untrusted import BadFileError, read_tensor_header, read_tensors, require_finite
from rankingmatch.networks.classifier import (
    Classifier,
    TimmBackbone,
    Tune,
    adapted,
    head_parameters,
    inner_network,
    own_normalization,
)
from rankingmatch.networks.efficientnet_lite import VARIANTS, efficientnet_lite
from rankingmatch.networks.reconstruction import WhatWhereEncoder
from rankingmatch.networks.wide_resnet import WideResNet, wide_resnet

log = logging.getLogger(__name__)

NetworkFactory = Callable[..., nn.Module]
TIMM_PREFIX = "timm:"

NETWORKS: dict[str, NetworkFactory] = {
    "small": partial(WideResNet, groups=3, blocks=1, filters=16),  # wrn-10-1
    "wrn-28-2": partial(WideResNet, groups=3, blocks=4, filters=32),
    "wrn-28-2-large": partial(WideResNet, groups=3, blocks=4, filters=135),
    "wrn-37-2": partial(WideResNet, groups=4, blocks=4, filters=32),
    **{name: partial(efficientnet_lite, name) for name in VARIANTS},
    # The network of the SWWAE paper for STL-10, and one for small images.
    "swwae": partial(
        WhatWhereEncoder, stages=(((64,), 4), ((64,), 3), ((128, 128), 2), ((256, 256, 256, 512, 512, 512), 2))
    ),
    "swwae-small": partial(WhatWhereEncoder, stages=(((32, 32), 2), ((64, 64), 2))),
}


@dataclass(frozen=True)
class NetworkSettings:
    """Which network to train, the weights it starts from, and what of it is trained; each field's help says more."""

    network: str = option(
        "wrn-28-2",
        "A Wide ResNet (wrn-28-2, wrn-28-2-large, wrn-37-2, wrn-D-W), 'small' for tiny images, swwae or "
        "swwae-small for the method swwae, efficientnet-lite0, -lite1 or -lite2 for photographs, timm:NAME or "
        "timm:NAME@SIDE for a model of timm, or the import path package.module:factory of a function called with "
        "(channels, classes).",
    )
    batchnorm_momentum: float | None = option(
        None,
        "Momentum of BatchNorm's running statistics; by default 0.001 for a full run, more for a shorter one.",
        interval="(0, 1]",
    )
    pretrained: bool = option(
        False, "Start from the pretrained weights of efficientnet-lite, timm or your own factory."
    )
    tune: Tune = option(
        "all",
        "What to train: all weights, the upper half of the network (top), or only its head. With top and "
        "head, the outputs of the frozen part are computed once, for {bank_views} views of each image.",
    )
    fixed_batchnorm: bool | None = option(
        None, "Keep BatchNorm's running statistics fixed. By default, on for pretrained weights."
    )
    initial_head: Literal["random", "fitted"] = option(
        "random",
        "Initial head: random weights, or fitted to the labels on normalized pretrained features. If the "
        "method uses unlabeled images, it first predicts their labels from these features.",
    )
    weights: str | None = option(
        None,
        "Start from the weights in this safetensors file; a head of a different size is initialized randomly.",
        path=True,
    )


def register_network(name: str, factory: NetworkFactory) -> None:
    """Add a network to `NETWORKS`, so that it can be used by name.

    A saved model stores only the name of its network: register the network before you load the model.

    Parameters
    ----------
    name : str
        A name that no other network has, without a colon.
    factory : callable
        ``factory(channels, classes)`` returns a `torch.nn.Module`. If the network has pretrained weights, the factory
        also takes the keyword `pretrained`, a bool.
    """
    if name in NETWORKS:
        raise ConfigError(f"there is already a network '{name}'; choose another name")
    if ":" in name:
        raise ConfigError(f"a network cannot be named '{name}': a colon marks an import path; choose another name")
    NETWORKS[name] = factory


def make_backbone(name: str, channels: int, classes: int, *, pretrained: bool = False) -> nn.Module:
    """Make a network from its name.

    It maps normalized float images (n, channels, height, width) to logits (n, classes), or to logits and features
    (n, width). Without pretrained weights, it is initialized from torch's global generator. `ConfigError` if there is
    no such network, or it cannot be made.
    """
    if name.startswith(TIMM_PREFIX):
        return _timm_backbone(name, channels, classes, pretrained=pretrained)
    found = import_object("network", name) if ":" in name else NETWORKS.get(name) or wide_resnet(name)
    if found is None:
        raise unknown_name("network", name, NETWORKS, " (or wrn-D-W, timm:NAME, package.module:factory)")
    return adapted(_call_factory(name, found, channels, classes, pretrained))


def make_classifier(
    network: str,
    classes: int,
    mean: Tensor | Sequence[float] | None = None,
    std: Tensor | Sequence[float] | None = None,
    *,
    channels: int | None = None,
    pretrained: bool = False,
    weights: str | None = None,
) -> Classifier:
    """Make a model that takes uint8 images: a network with its input normalization.

    Parameters
    ----------
    network : str
        The name of the network, as in `make_backbone`.
    mean, std : Tensor or sequence of float, optional
        Mean and standard deviation of each channel (channels,), on the scale 0 to 1, as `channel_statistics` returns
        them. By default 0.5 and 0.25. A network with an input normalization of its own, or one that is stored with its
        weights, keeps that.
    channels : int, optional
        By default the number of values of `mean` or `std`, or 3.
    weights : str, optional
        The path of a safetensors file with weights, which must fit the network except for its head.

    Examples
    --------
    >>> model = make_classifier("wrn-28-2", classes=10)
    >>> model(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).logits.shape
    torch.Size([2, 10])
    """
    if pretrained and weights is not None:
        raise ConfigError(f"{setting('pretrained')} and {setting('weights')} are mutually exclusive; give one of them")
    count = channels or next((len(values) for values in (mean, std) if values is not None), 3)
    statistics = _per_channel("mean", mean, 0.5, count), _per_channel("std", std, 0.25, count)
    backbone = make_backbone(network, count, classes, pretrained=pretrained)
    own = own_normalization(backbone, count)
    if weights is not None:
        own = load_weights(backbone, weights, network) or own
    classifier = Classifier(backbone, *(own or statistics))
    # Convolutions are faster in this memory format.
    return classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def input_side(name: str) -> int | None:
    """The image size in pixels that the network of this `name` must be given; None if it takes any size."""
    if not name.startswith(TIMM_PREFIX):
        return None
    backbone = _timm_backbone(name, channels=3, classes=2, pretrained=False)
    return min(backbone.size) if backbone.size else None


def _per_channel(name: str, given: Tensor | Sequence[float] | None, default: float, channels: int) -> Tensor:
    """The given values, or the default, as a tensor (channels,)."""
    values = torch.full((channels,), default) if given is None else torch.as_tensor(given)
    if values.shape != (channels,):
        shape = tuple(values.shape)
        raise ConfigError(f"{name} has the shape {shape} for images of {channels} channels; give one value per channel")
    return values


def _call_factory(name: str, factory: NetworkFactory, channels: int, classes: int, pretrained: bool) -> nn.Module:
    """Call a factory, which may be the user's code; ConfigError if anything is wrong with it."""
    keywords = {"pretrained": True} if pretrained else {}
    try:
        inspect.signature(factory).bind("channels", "classes")
    except (TypeError, ValueError) as error:
        raise ConfigError(f"network '{name}' must be callable with (channels, classes): {error}") from error
    try:
        inspect.signature(factory).bind("channels", "classes", **keywords)
    except TypeError:
        raise ConfigError(
            f"{setting('pretrained')}: there are no weights for '{name}'; use efficientnet-lite0, timm:NAME, "
            f"{setting('weights')}, or a factory that is callable with (channels, classes, pretrained=True)"
        ) from None
    try:
        network = factory(channels, classes, **keywords)
    except RankingMatchError:
        raise
    except Exception as error:
        raise ConfigError(f"network '{name}' cannot be built ({type(error).__name__}: {error})") from error
    if not isinstance(network, nn.Module):
        raise ConfigError(f"network '{name}' returned a {type(network).__name__}, not a torch.nn.Module")
    return network


def _timm_backbone(name: str, channels: int, classes: int, *, pretrained: bool) -> TimmBackbone:
    """Make the model ``timm:NAME``, or ``timm:NAME@SIDE`` for images of another side than the model's own."""
    model_name, at, side = name.removeprefix(TIMM_PREFIX).partition("@")
    if not model_name or (at and not (side.isdecimal() and int(side) > 0)):
        raise ConfigError(f"network '{name}': write timm:NAME, or timm:NAME@SIDE with a side in pixels")
    try:
        timm: Any = importlib.import_module("timm")
    except Exception as error:  # an incompatible torchvision may raise anything
        absent = isinstance(error, ModuleNotFoundError)
        remedy = "pip install 'rankingmatch[timm]'" if absent else "install a torchvision that was built for this torch"
        raise ConfigError(f"network '{name}' needs timm ({_reason(error)}): {remedy}") from error
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


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


# --- weights in a safetensors file ---------------------------------------------------------------------------


def load_weights(backbone: nn.Module, path: str, network: str) -> tuple[Tensor, Tensor] | None:
    """Load the weights of a safetensors file into a backbone; return the normalization if the file has one.

    The file has the parameter names of the network, as those of timm do, or was saved by this package. All tensors must
    fit except for those of a head of a different size or kind, which is initialized randomly, with a warning.
    """
    try:
        saved_here = "rankingmatch" in read_tensor_header(Path(path)).metadata
        given = read_tensors(Path(path))
        require_finite(given)
    except FileNotFoundError:
        raise ConfigError(f"{setting('weights')}: there is no file {path}") from None
    except (OSError, BadFileError) as error:
        raise ConfigError(f"{setting('weights')}: {path} is not a safetensors file ({_reason(error)})") from error
    inner, prefix = inner_network(backbone)
    normalization = None
    if saved_here and "mean" in given and "std" in given:
        normalization = given["mean"].flatten(), given["std"].flatten()
        inside = {name: value for name, value in given.items() if name.startswith("backbone.")}
        given = {name.removeprefix("backbone.").removeprefix(prefix): value for name, value in inside.items()}
    own = inner.state_dict()
    head = {name.removeprefix(prefix) for name in head_parameters(backbone)}
    centers = {name for name in given.keys() - own.keys() if name.endswith(".center")}  # of a `NormalizedLinear`
    head_fits = not centers and all(name in given and given[name].shape == own[name].shape for name in head)
    reset = set() if head_fits else head
    needed = own.keys() - reset
    problems = {
        "missing": needed - given.keys(),
        "unknown": given.keys() - own.keys() - centers,
        "of a different shape": {name for name in needed & given.keys() if own[name].shape != given[name].shape},
    }
    if any(problems.values()):
        text = "; ".join(f"{len(names)} {kind}, such as {min(names)}" for kind, names in problems.items() if names)
        raise ConfigError(f"{setting('weights')}: {path} does not fit the network '{network}': {text}")
    inner.load_state_dict({name: given[name] if name in needed else own[name] for name in own})
    if reset:
        kind = "the head has a different size or kind and is initialized randomly"
        log.warning("%s: %s: %s", path, kind, ", ".join(sorted(reset)))
    return normalization
