"""Networks: the Wide ResNet family, a small default, timm's models, and any module by import path.

A backbone takes normalised float images (n, c, h, w) and returns logits, or logits and features. A
`Classifier` puts the normalisation in front of it, so that a model takes plain uint8 images everywhere.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.backbones import PREFIX, adapted, load_weights, own_normalisation, timm_backbone
from rankingmatch.distributed import gathered, scattered
from rankingmatch.errors import ConfigError, unknown_name
from rankingmatch.options import imported, option


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
        None, "Start from the weights in this safetensors file; a head of another size starts anew."
    )


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


class WideResNet(nn.Module):
    """Pre-activation Wide ResNet: a stem of 16 filters, groups whose width doubles, a linear head."""

    def __init__(self, channels: int, classes: int, *, groups: int, blocks: int, filters: int) -> None:
        super().__init__()
        widths = [filters * 2**group for group in range(groups)]
        self.stem = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        layers: list[nn.Module] = []
        before = 16
        for group, width in enumerate(widths):
            for block in range(blocks):
                stride = 2 if group > 0 and block == 0 else 1
                layers.append(Block(before, width, stride, activate_shortcut=not layers))
                before = width
        self.blocks = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(before, eps=1e-3)
        self.head = nn.Linear(before, classes)
        _initialize(self)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised (n, c, h, w) images → logits (n, classes), features (n, width of the last group)."""
        maps = _activate(self.norm(self.blocks(self.stem(images))))
        features = maps.mean((2, 3))
        return self.head(features), features


class Block(nn.Module):
    """BN, activation, conv, twice, added to the shortcut.

    conv1 always gets the activated input. The shortcut gets the raw input, except in a network's first block,
    where the activated input feeds both. A 1×1 convolution adapts it where the shape changes.
    """

    def __init__(self, before: int, width: int, stride: int, *, activate_shortcut: bool) -> None:
        super().__init__()
        self.activate_shortcut = activate_shortcut
        self.norm1 = nn.BatchNorm2d(before, eps=1e-3)
        self.conv1 = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width, eps=1e-3)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        same = before == width and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, width, 1, stride, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """(n, before, h, w) → (n, width, h / stride, w / stride)."""
        activated = _activate(self.norm1(maps))
        shortcut: Tensor = self.shortcut(activated if self.activate_shortcut else maps)
        inner: Tensor = self.conv2(_activate(self.norm2(self.conv1(activated))))
        return shortcut + inner


def _activate(maps: Tensor) -> Tensor:
    return F.leaky_relu(maps, 0.1)


def _initialize(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            # N(0, √(2 / (k² · out)))
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight)
            nn.init.zeros_(module.bias)


def wide_resnet(name: str) -> Callable[[int, int], nn.Module] | None:
    """The factory for a name of the family, None for any other name.

    wrn-D-W has depth D = 1 + groups · (2 · blocks + 1): 6·blocks + 4 with three groups, 8·blocks + 5 with four.
    """
    match = re.fullmatch(r"wrn-(\d+)-(\d+)(-large)?", name)
    if match is None:
        return None
    depth, width, large = int(match[1]), int(match[2]), match[3] is not None
    for groups in (3, 4):
        blocks, rest = divmod(depth - 1 - groups, 2 * groups)
        if width == 0:
            raise ConfigError(f"network '{name}': the width must be at least 1")
        if rest == 0 and blocks > 0:
            filters = 135 * width // 2 if large else 16 * width
            return lambda channels, classes: WideResNet(
                channels, classes, groups=groups, blocks=blocks, filters=filters
            )
    raise ConfigError(
        f"network '{name}': the depth must be 6n + 4 (three groups) or 8n + 5 (four), such as 10, 16, 28, 37"
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
    factory = imported("network", path)
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
