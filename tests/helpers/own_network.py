"""Users' own networks, found by import path in tests."""

from torch import Tensor, nn

from rankingmatch.networks import WhatWhereDecoder, WhatWhereEncoder
from rankingmatch.networks.reconstruction import PooledMaps


def linear_network(channels: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.5), nn.Linear(16 * channels, classes))


def tied_network(channels: int, classes: int) -> nn.Module:
    layer = nn.Linear(classes, classes)
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * channels, classes), layer, layer)


def raises(channels: int, classes: int) -> nn.Module:
    raise RuntimeError("no")


def wrong_classes(channels: int, classes: int) -> nn.Module:
    return linear_network(channels, classes + 1)


def larger_images(channels: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(32 * 32 * channels, classes))


def of_one_number(channels: int) -> nn.Module:
    return nn.Identity()


def no_module(channels: int, classes: int) -> int:
    return channels + classes


class GroupNormNetwork(nn.Module):
    """What comes out for an image does not depend on the others of its batch."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        first, second = nn.Conv2d(channels, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.body = nn.Sequential(first, nn.GroupNorm(2, 8), nn.ReLU(), second, nn.GroupNorm(4, 16), nn.ReLU())
        self.head = nn.Linear(16, classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(images).mean((2, 3))
        return self.head(features), features


class DoubleEncoder(WhatWhereEncoder):
    """The same for SWWAE, in double precision: where two values are nearly equal, rounding would decide the switch."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes, stages=(((8,), 2), ((16,), 2)), norm=group_norm)
        self.double()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(images.double())

    def encode(self, images: Tensor) -> tuple[Tensor, list[PooledMaps]]:
        return super().encode(images.double())

    def decoder(self) -> WhatWhereDecoder:
        return WhatWhereDecoder(self.channels, self.plan, group_norm).double()


def group_norm(width: int) -> nn.Module:
    return nn.GroupNorm(min(4, width), width)


class DoubleNetwork(GroupNormNetwork):
    """In double precision, for what magnifies rounding."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.double()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(images.double())


class IdleNetwork(GroupNormNetwork):
    """Has a layer that it does not use."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.idle = nn.Linear(2, 2)
