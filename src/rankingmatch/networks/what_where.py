"""Convolutions with max-pooling whose switches are kept, and the decoder that unpools with them (Zhao et al., 2015)."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.networks.batchnorm import batch_norm_of_training
from rankingmatch.networks.registry import register_network

__all__ = ["PooledMaps", "WhatWhereDecoder", "WhatWhereEncoder"]

Norm = Callable[[int], nn.Module]
# The stages of a network: the widths of the convolutions before each pooling, and the side of its windows.
Stages = Sequence[tuple[tuple[int, ...], int]]


class PooledMaps(NamedTuple):
    """What a stage of the encoder computes.

    Attributes
    ----------
    what : Tensor
        The largest value of each window (n, width, h / pool, w / pool).
    where : Tensor
        The switches: where in the map each of them was, of the same shape.
    size : tuple of int
        Height and width of the map before pooling.
    """

    what: Tensor
    where: Tensor
    size: tuple[int, int]


class WhatWhereEncoder(nn.Module):
    """A network of convolutions and max-pooling with a linear head; its switches are available to a decoder.

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
        return self._output(maps)

    def encode(self, images: Tensor) -> tuple[Tensor, list[PooledMaps]]:
        """Compute the logits (n, classes) of normalized images (n, c, h, w), and the pooled maps of all stages."""
        maps, pooled = images, []
        for stage, (_, pool) in zip(self.stages, self.plan, strict=True):
            whole = stage(maps)
            maps, where = F.max_pool2d(whole, pool, ceil_mode=True, return_indices=True)
            pooled.append(PooledMaps(maps, where, (whole.shape[2], whole.shape[3])))
        return self._output(maps)[0], pooled

    def decoder(self) -> "WhatWhereDecoder":
        """Make a decoder whose stages mirror those of this network."""
        return WhatWhereDecoder(self.channels, self.plan)

    def _output(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        features = maps.mean((2, 3))
        return self.head(features), features


class WhatWhereDecoder(nn.Module):
    """Unpools with the switches of a `WhatWhereEncoder`, and convolves, from the last stage to the first.

    Parameters
    ----------
    channels, stages
        Those of the encoder.
    norm : callable
        The normalization of a given number of channels.
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


# The paper's network for STL-10, and one for small images.
register_network(
    "swwae",
    partial(
        WhatWhereEncoder,
        stages=(((64,), 4), ((64,), 3), ((128, 128), 2), ((256, 256, 256, 512, 512, 512), 2)),
    ),
)
register_network("swwae-small", partial(WhatWhereEncoder, stages=(((32, 32), 2), ((64, 64), 2))))
