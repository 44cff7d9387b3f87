"""Users' own networks, found by import path in tests."""

from torch import nn


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
