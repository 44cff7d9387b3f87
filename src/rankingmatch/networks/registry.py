"""Networks by name, and classifiers around them.

A backbone takes normalized float images (n, c, h, w) and returns logits, or logits and features. A
`Classifier` puts the normalization in front of it, so that a model takes plain uint8 images everywhere.
"""

import inspect
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError, unknown_name
from rankingmatch.core.options import import_object, option
from rankingmatch.networks.classifier import Classifier
from rankingmatch.networks.pretrained import PREFIX, adapted, load_weights, own_normalisation, timm_backbone
from rankingmatch.networks.wide_resnet import wide_resnet


@dataclass(frozen=True)
class NetworkSettings:
    """Which network, what it starts from, and how its BatchNorm averages."""

    network: str = option(
        "wrn-28-2",
        "A name from the Wide ResNet family (wrn-28-2, wrn-28-2-large, wrn-37-2, wrn-D-W), 'small' for tiny "
        "images, timm:NAME or timm:NAME@SIDE for a model of timm, or an import path package.module:factory called with "
        "(channels, classes).",
    )
    batchnorm_momentum: float | None = option(
        None,
        "Momentum of BatchNorm's running statistics; by default 0.001 for a full run, more for a shorter one.",
        interval="(0, 1]",
    )
    pretrained: bool = option(False, "Start from the weights that timm, or your factory, has for the network.")
    weights: str | None = option(
        None, "Start from the weights in this safetensors file; a head of another size starts anew.", path=True
    )


NETWORKS: dict[str, str] = {
    "small": "wrn-10-1",
    "wrn-28-2": "wrn-28-2",
    "wrn-28-2-large": "wrn-28-2-large",
    "wrn-37-2": "wrn-37-2",
}


def make_backbone(name: str, channels: int, classes: int, *, pretrained: bool = False) -> nn.Module:
    """The network called `name`, freshly initialised from torch's global generator, or as others have trained it."""
    if name.startswith(PREFIX):
        return timm_backbone(name, channels, classes, pretrained=pretrained)
    if ":" in name:
        return adapted(_imported(name, channels, classes, **({"pretrained": True} if pretrained else {})))
    factory = wide_resnet(NETWORKS.get(name, name))
    if factory is None:
        raise unknown_name("network", name, NETWORKS, " (or wrn-D-W, or package.module:factory)")
    if pretrained:
        raise ConfigError(f"--pretrained: there are no weights for '{name}'; use timm:NAME, or --weights FILE")
    return factory(channels, classes)


def make_classifier(
    network: str, classes: int, mean: Tensor, std: Tensor, *, pretrained: bool = False, weights: str | None = None
) -> Classifier:
    """A classifier for images of `len(mean)` channels around the network of that name.

    It normalises by `mean` and `std`, unless the backbone or its weights come with a normalisation of their own.
    """
    if pretrained and weights is not None:
        raise ConfigError("--pretrained and --weights say the same thing twice; give one of them")
    channels = len(mean)
    backbone = make_backbone(network, channels, classes, pretrained=pretrained)
    own = own_normalisation(backbone, channels)
    if weights is not None:
        own = load_weights(backbone, weights, network) or own
    classifier = Classifier(backbone, *(own or (mean, std)))
    # Convolutions are faster with the channels of a pixel side by side.
    return classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _imported(path: str, channels: int, classes: int, **more: bool) -> nn.Module:
    factory = import_object("network", path)
    try:
        inspect.signature(factory).bind(channels, classes, **more)
    except (TypeError, ValueError) as error:
        call = ", ".join(["channels, classes", *(f"{name}={value}" for name, value in more.items())])
        raise ConfigError(f"network '{path}' must be callable with ({call}): {error}") from error
    try:
        network = factory(channels, classes, **more)
    except Exception as error:  # it is the user's code
        raise ConfigError(f"network '{path}' cannot be built ({type(error).__name__}: {error})") from error
    if not isinstance(network, nn.Module):
        raise ConfigError(f"network '{path}' returned a {type(network).__name__}, not a torch.nn.Module")
    return network
