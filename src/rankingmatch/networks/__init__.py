"""Networks: Wide ResNets, EfficientNet-Lite, models of timm, your own; classifiers around them.

Examples
--------
>>> from rankingmatch.networks import make_classifier, register_network
>>> model = make_classifier("wrn-28-2", classes=10)  # uint8 images (n, 3, h, w) → logits and features
>>> register_network("mine", lambda channels, classes: MyNetwork(channels, classes))  # doctest: +SKIP
>>> model = make_classifier("mine", classes=10, channels=1)  # doctest: +SKIP

Notes
-----
The functions share these parameters:

- `name`: a name in `NETWORKS`, a Wide ResNet as ``wrn-D-W``, ``timm:NAME``, ``timm:NAME@SIDE``, or the import path
  ``package.module:factory`` of a factory as in `register_network`.
- `channels`, `classes`: the number of image channels and of classes.
- `pretrained`: whether to load the network's pretrained weights.
- `network`, `backbone`: a module that maps normalized images to logits; if it is changed, then in place.
- `model`, `device`: a model that returns an `Output`, and where it is.
- `images`: uint8 images (n, h, w, c); `size`: images per batch.
"""

from rankingmatch.networks.build import (
    NETWORKS,
    NetworkFactory,
    NetworkSettings,
    input_side,
    make_backbone,
    make_classifier,
    register_network,
)
from rankingmatch.networks.classifier import (
    Classifier,
    NormalizedLinear,
    Output,
    batched_outputs,
    channel_statistics,
    freeze,
    freeze_batchnorm,
    head_parameters,
    normalize_head,
    predict_logits,
    predict_logits_and_features,
    predict_probabilities,
    set_batchnorm_momentum,
    to_tensor,
)
from rankingmatch.networks.efficientnet_lite import EfficientNetLite, WeightsInfo
from rankingmatch.networks.reconstruction import InpaintingGenerator, WhatWhereDecoder, WhatWhereEncoder
from rankingmatch.networks.wide_resnet import WideResNet, wide_resnet

__all__ = [
    "NETWORKS",
    "Classifier",
    "EfficientNetLite",
    "InpaintingGenerator",
    "NetworkFactory",
    "NetworkSettings",
    "NormalizedLinear",
    "Output",
    "WeightsInfo",
    "WhatWhereDecoder",
    "WhatWhereEncoder",
    "WideResNet",
    "batched_outputs",
    "channel_statistics",
    "freeze",
    "freeze_batchnorm",
    "head_parameters",
    "input_side",
    "make_backbone",
    "make_classifier",
    "normalize_head",
    "predict_logits",
    "predict_logits_and_features",
    "predict_probabilities",
    "register_network",
    "set_batchnorm_momentum",
    "to_tensor",
    "wide_resnet",
]


def __dir__() -> list[str]:
    return __all__
