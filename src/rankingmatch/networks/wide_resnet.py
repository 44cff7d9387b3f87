"""Pre-activation Wide ResNets, the networks of the paper."""

import re
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.errors import ConfigError

DEEPEST, WIDEST = 2000, 1000  # a larger one takes minutes to build


class WideResNet(nn.Module):
    """Pre-activation Wide ResNet: a stem of 16 filters, groups whose width doubles, a linear head.

    Parameters
    ----------
    channels, classes : int
        The number of image channels and of classes.
    groups : int
        The number of groups; each but the first halves the resolution.
    blocks : int
        The number of residual blocks in each group.
    filters : int
        The width of the first group.
    """

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
        # He initialization of the convolutions, Xavier initialization of the head.
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # N(0, √(2 / (k² · out)))
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.xavier_normal_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute logits (n, classes) and features (n, width of the last group) of normalized images (n, c, h, w)."""
        maps = _activate(self.norm(self.blocks(self.stem(images))))
        features = maps.mean((2, 3))
        return self.head(features), features


class Block(nn.Module):
    """A residual block: BatchNorm, activation and convolution, twice, added to the shortcut.

    conv1 always gets the activated input. The shortcut gets the raw input, except in the first block of a network,
    where it gets the activated input as well. If the shape changes, the shortcut is a 1×1 convolution.
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
        """Map (n, before, h, w) to (n, width, h / stride, w / stride)."""
        activated = _activate(self.norm1(maps))
        shortcut: Tensor = self.shortcut(activated if self.activate_shortcut else maps)
        inner: Tensor = self.conv2(_activate(self.norm2(self.conv1(activated))))
        return shortcut + inner


def _activate(maps: Tensor) -> Tensor:
    return F.leaky_relu(maps, 0.1)


def wide_resnet(name: str) -> Callable[[int, int], WideResNet] | None:
    """Find the factory for a name ``wrn-D-W``.

    The depth is D = 1 + groups · (2 · blocks + 1): 6·blocks + 4 with three groups, 8·blocks + 5 with four. The width of
    the first group is 16 W.

    Parameters
    ----------
    name : str
        ``wrn-D-W``, or ``wrn-D-W-large`` for a first group of ⌊135 W / 2⌋ filters. None is returned if the name is not
        of this form; `ConfigError` is raised if there is no network of this depth or width.
    """
    match = re.fullmatch(r"wrn-([0-9]{1,6})-([0-9]{1,6})(-large)?", name)
    if match is None:
        return None
    depth, width, large = int(match[1]), int(match[2]), match[3] is not None
    if depth > DEEPEST or not 0 < width <= WIDEST:
        raise ConfigError(
            f"network '{name}': the width must be at least 1 and at most {WIDEST}, the depth at most {DEEPEST}"
        )
    for groups in (3, 4):
        blocks, rest = divmod(depth - 1 - groups, 2 * groups)
        if rest == 0 and blocks > 0:
            filters = 135 * width // 2 if large else 16 * width
            return partial(WideResNet, groups=groups, blocks=blocks, filters=filters)
    raise ConfigError(
        f"network '{name}': the depth must be 6n + 4 (three groups) or 8n + 5 (four), such as 10, 16, 28, 37"
    )
