"""Networks that produce images: the what-where autoencoder of the method swwae, and the generator of cc-gan."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Norm = Callable[[int], nn.Module]
# The stages of a network: the widths of the convolutions before each pooling, and the side of its windows.
Stages = Sequence[tuple[tuple[int, ...], int]]
HALVINGS = 3  # of the resolution in the generator


def batch_norm_of_training(width: int) -> nn.BatchNorm2d:
    """BatchNorm for a part that is used in training only: it always normalizes by the batch."""
    return nn.BatchNorm2d(width, track_running_stats=False)


class PooledMaps(NamedTuple):
    """What a stage of the encoder computes."""

    what: Tensor  # the largest value of each window (n, width, h / pool, w / pool)
    where: Tensor  # the switches: where in the map each of them was, of the same shape
    size: tuple[int, int]  # of the map before pooling


class WhatWhereEncoder(nn.Module):
    """Convolutions and max-pooling with a linear head; a decoder can use its switches (Zhao et al., 2015).

    Parameters
    ----------
    channels, classes : int
        The number of image channels and of classes.
    stages : sequence of (widths, pool)
        For each stage, the widths of its convolutions and the side of its pooling windows.
    norm : callable
        The normalization of a given number of channels.
    """

    def __init__(self, channels: int, classes: int, *, stages: Stages, norm: Norm = nn.BatchNorm2d) -> None:
        super().__init__()
        self.channels, self.plan = channels, stages
        self.stages = nn.ModuleList()
        before = channels
        for widths, _ in stages:
            self.stages.append(_convolutions((before, *widths), norm))
            before = widths[-1]
        self.head = nn.Linear(before, classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute logits (n, classes) and features (n, width of the last stage) of normalized images (n, c, h, w)."""
        maps = images
        for stage, (_, pool) in zip(self.stages, self.plan, strict=True):
            maps = F.max_pool2d(stage(maps), pool, ceil_mode=True)
        features = maps.mean((2, 3))
        return self.head(features), features

    def encode(self, images: Tensor) -> tuple[Tensor, list[PooledMaps]]:
        """Compute the logits (n, classes) of normalized images (n, c, h, w), and the pooled maps of all stages."""
        maps, pooled = images, []
        for stage, (_, pool) in zip(self.stages, self.plan, strict=True):
            whole = stage(maps)
            maps, where = F.max_pool2d(whole, pool, ceil_mode=True, return_indices=True)
            pooled.append(PooledMaps(maps, where, (whole.shape[2], whole.shape[3])))
        return self.head(maps.mean((2, 3))), pooled

    def decoder(self) -> "WhatWhereDecoder":
        """Make a decoder whose stages mirror those of this network."""
        return WhatWhereDecoder(self.channels, self.plan)


class WhatWhereDecoder(nn.Module):
    """Unpools with the switches of a `WhatWhereEncoder`, and convolves, from the last stage to the first.

    Parameters
    ----------
    channels, stages, norm
        As of the encoder.
    """

    def __init__(self, channels: int, stages: Stages, norm: Norm = batch_norm_of_training) -> None:
        super().__init__()
        self.pools = [pool for _, pool in reversed(stages)]
        widths = [widths for widths, _ in stages]
        self.stages = nn.ModuleList(
            _convolutions((*reversed(own), before[-1]), norm) for before, own in pairwise(widths)
        )[::-1]
        # Images are normalized, too, but of any sign: the last layer has a normalization but no activation.
        self.stages.append(_convolutions((*reversed(widths[0]), channels), norm)[:-1])

    def forward(self, pooled: Sequence[PooledMaps]) -> list[Tensor]:
        """Reconstruct the input of every stage: first the images, then the pooled maps of all stages but the last."""
        maps, inputs = pooled[-1].what, []
        for stage, pool, of_stage in zip(self.stages, self.pools, reversed(pooled), strict=True):
            maps = stage(F.max_unpool2d(maps, of_stage.where, (pool, pool), output_size=of_stage.size))
            inputs.append(maps)
        return inputs[::-1]


def _convolutions(widths: Sequence[int], norm: Norm) -> nn.Sequential:
    """3×3 convolutions from one width to the next, each with normalization and activation."""
    layers: list[nn.Module] = []
    for before, width in pairwise(widths):
        convolution = nn.Conv2d(before, width, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        layers += [convolution, norm(width), nn.LeakyReLU(0.1)]
    return nn.Sequential(*layers)


class InpaintingGenerator(nn.Module):
    """Fills holes in images from what is around them: strided convolutions, then transposed ones.

    Parameters
    ----------
    channels : int
        The number of image channels.
    width : int
        The number of filters at full resolution; it doubles with every halving.
    """

    def __init__(self, channels: int, width: int = 32) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(HALVINGS + 1)]
        self.stem = nn.Conv2d(channels + 1, width, 3, padding=1, bias=False)
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False) for a, b in pairwise(widths))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 3, stride=2, padding=1, bias=False) for a, b in reversed(list(pairwise(widths)))
        )
        self.norms = nn.ModuleList(batch_norm_of_training(size) for size in [*widths, *reversed(widths[:-1])])
        self.pixels = nn.Conv2d(width, channels, 3, padding=1)
        for layer in (self.stem, *self.down, *self.up):
            assert isinstance(layer.weight, Tensor)
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, images: Tensor, kept: Tensor) -> Tensor:
        """Generate images (n, c, h, w) with values 0 to 255, also outside of the hole.

        Parameters
        ----------
        images : Tensor
            Images (n, c, h, w) with values 0 to 255.
        kept : Tensor
            Booleans (n, 1, h, w): False in the hole, which the generator does not see.
        """
        norms = iter(self.norms)
        seen = torch.where(kept, images / 127.5 - 1, 0)
        maps = _activate(next(norms)(self.stem(torch.cat([seen, kept.to(seen.dtype)], 1))))
        sizes = []
        for layer in self.down:
            sizes.append(maps.shape[2:])
            maps = _activate(next(norms)(layer(maps)))
        for layer in self.up:
            maps = _activate(next(norms)(layer(maps, output_size=sizes.pop())))
        pixels: Tensor = self.pixels(maps)
        return 255 * pixels.float().sigmoid()


def _activate(maps: Tensor) -> Tensor:
    return F.leaky_relu(maps, 0.1)
