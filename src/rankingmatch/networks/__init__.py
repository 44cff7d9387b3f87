"""Networks: Wide ResNets, timm's models, your own by import path, and the classifier around them."""

from rankingmatch.networks.classifier import (
    Classifier,
    Output,
    channel_statistics,
    outputs,
    set_batchnorm_momentum,
    to_tensor,
)
from rankingmatch.networks.pretrained import head_parameters, input_side
from rankingmatch.networks.registry import NETWORKS, NetworkSettings, make_backbone, make_classifier
from rankingmatch.networks.wide_resnet import WideResNet, wide_resnet

__all__ = [
    "NETWORKS",
    "Classifier",
    "NetworkSettings",
    "Output",
    "WideResNet",
    "channel_statistics",
    "head_parameters",
    "input_side",
    "make_backbone",
    "make_classifier",
    "outputs",
    "set_batchnorm_momentum",
    "to_tensor",
    "wide_resnet",
]
