"""Networks by name, and classifiers around them."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError, RankingMatchError, setting, unknown_name
from rankingmatch.core.imports import import_object
from rankingmatch.core.options import option
from rankingmatch.networks.classifier import Classifier, Tune
from rankingmatch.networks.pretrained import TIMM_PREFIX, adapted, load_weights, own_normalization, timm_backbone
from rankingmatch.networks.registry import NETWORKS, NetworkFactory
from rankingmatch.networks.wide_resnet import wide_resnet

__all__ = ["NetworkSettings", "freeze", "make_backbone", "make_classifier"]


@dataclass(frozen=True)
class NetworkSettings:
    """Which network to train, the weights it starts from, and the momentum of its BatchNorm layers.

    Attributes
    ----------
    network : str
        The name of the network, as in `make_backbone`.
    batchnorm_momentum : float or None
        The momentum of BatchNorm's running statistics; None depends on the length of training.
    pretrained : bool
        Whether to start from the network's pretrained weights.
    tune : {"all", "top", "head"}
        What is trained; the rest of the network is frozen.
    fixed_batchnorm : bool or None
        Whether BatchNorm's running statistics stay fixed; None if the weights are pretrained.
    initial_head : {"random", "fitted"}
        How the head starts; one that is fitted takes normalized features.
    weights : str or None
        The path of a safetensors file with weights to start from.
    """

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
        "What is trained: all weights; the top, that is the upper half of the network; or only its head. With top and "
        "head, the frozen part is computed once for {bank_views} views of each image.",
    )
    fixed_batchnorm: bool | None = option(
        None, "Keep BatchNorm's running statistics fixed; by default, if the weights are pretrained."
    )
    initial_head: Literal["random", "fitted"] = option(
        "random",
        "How the head starts: with random weights, or fitted to the labels on normalized pretrained features. If the "
        "method uses unlabeled images, their labels are first predicted from these features.",
    )
    weights: str | None = option(
        None,
        "Start from the weights in this safetensors file; a head of a different size is initialized randomly.",
        path=True,
    )


def make_backbone(name: str, channels: int, classes: int, *, pretrained: bool = False) -> nn.Module:
    """Make a network from its name.

    Parameters
    ----------
    name : str
        A name in `NETWORKS`, a Wide ResNet as ``wrn-D-W``, ``timm:NAME``, ``timm:NAME@SIDE``, or the import path
        ``package.module:factory`` of a factory as in `register_network`.
    channels, classes : int
        The number of image channels and of classes.
    pretrained : bool
        Whether to load the network's pretrained weights. Otherwise it is initialized from torch's global generator.

    Returns
    -------
    torch.nn.Module
        Normalized float images (n, channels, height, width) → logits (n, classes), or (logits, features (n, width)).

    Raises
    ------
    ConfigError
        If there is no such network, or it cannot be made.
    """
    if name.startswith(TIMM_PREFIX):
        return timm_backbone(name, channels, classes, pretrained=pretrained)
    return adapted(_call_factory(name, _find_factory(name), channels, classes, pretrained))


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
    classes : int
        The number of classes.
    mean, std : Tensor or sequence of float, optional
        Mean and standard deviation of each channel (channels,), on the scale 0 to 1, as `channel_statistics` returns
        them. By default 0.5 and 0.25. A network with an input normalization of its own, or one that is stored with its
        weights, keeps that.
    channels : int, optional
        The number of channels; by default that of `mean` or `std`, or 3.
    pretrained : bool
        Whether to load the network's pretrained weights.
    weights : str, optional
        The path of a safetensors file with weights.

    Returns
    -------
    Classifier
        uint8 images (n, channels, height, width) → `Output`.

    Raises
    ------
    ConfigError
        If there is no such network, or the weights do not fit it.

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


def _per_channel(name: str, given: Tensor | Sequence[float] | None, default: float, channels: int) -> Tensor:
    """The given values, or the default, as a tensor (channels,)."""
    values = torch.full((channels,), default) if given is None else torch.as_tensor(given)
    if values.shape != (channels,):
        shape = tuple(values.shape)
        raise ConfigError(f"{name} has the shape {shape} for images of {channels} channels; give one value per channel")
    return values


def _find_factory(name: str) -> NetworkFactory:
    if ":" in name:
        imported: NetworkFactory = import_object("network", name)
        return imported
    factory = NETWORKS.get(name) or wide_resnet(name)
    if factory is None:
        raise unknown_name("network", name, NETWORKS, " (or wrn-D-W, timm:NAME, package.module:factory)")
    return factory


def _call_factory(name: str, factory: NetworkFactory, channels: int, classes: int, pretrained: bool) -> nn.Module:
    """Call a factory, which may be the user's code; ConfigError if anything is wrong with it."""
    keywords = {"pretrained": True} if pretrained else {}
    _check_signature(name, factory, keywords)
    try:
        network = factory(channels, classes, **keywords)
    except RankingMatchError:
        raise
    except Exception as error:
        raise ConfigError(f"network '{name}' cannot be built ({type(error).__name__}: {error})") from error
    if not isinstance(network, nn.Module):
        raise ConfigError(f"network '{name}' returned a {type(network).__name__}, not a torch.nn.Module")
    return network


def _check_signature(name: str, factory: NetworkFactory, keywords: dict[str, bool]) -> None:
    try:
        signature = inspect.signature(factory)
        signature.bind("channels", "classes")
    except (TypeError, ValueError) as error:
        raise ConfigError(f"network '{name}' must be callable with (channels, classes): {error}") from error
    try:
        signature.bind("channels", "classes", **keywords)
    except TypeError:
        raise ConfigError(
            f"{setting('pretrained')}: there are no weights for '{name}'; use efficientnet-lite0, timm:NAME, "
            f"{setting('weights')}, or a factory that is callable with (channels, classes, pretrained=True)"
        ) from None


def freeze(model: Classifier, tune: Tune) -> None:
    """Freeze the part of a model that is not tuned, so that it also takes maps of that part.

    Parameters
    ----------
    model : Classifier
        The model, changed in place.
    tune : {"all", "top", "head"}
        What stays trainable.

    Raises
    ------
    ConfigError
        If the network has no such parts.
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
