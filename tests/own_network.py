"""A user's own network, found by import path in tests."""

from torch import nn


def linear_network(channels: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.5), nn.Linear(16 * channels, classes))
