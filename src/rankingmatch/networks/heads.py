"""A head on normalized features, for fine-tuning: the scale of pretrained features does not become confidence."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.networks.pretrained import head_parameters

__all__ = ["NormalizedLinear", "has_normalized_head", "normalize_head"]

CENTER = "center"


class NormalizedLinear(nn.Linear):
    """A linear layer on features that are centered and scaled to unit length: W (f - c) / ‖f - c‖ + b.

    Attributes
    ----------
    center : Tensor
        c (width,), a buffer.
    """

    center: Tensor

    def __init__(self, width: int, classes: int) -> None:
        super().__init__(width, classes)
        self.register_buffer(CENTER, torch.zeros(width))

    def forward(self, features: Tensor) -> Tensor:
        """Map features (n, width) to logits (n, classes)."""
        return super().forward(F.normalize(features - self.center))


def normalize_head(backbone: nn.Module) -> NormalizedLinear:
    """Replace the head of a network by a `NormalizedLinear` with the same weights, unless it is one already.

    Parameters
    ----------
    backbone : torch.nn.Module
        A network whose last layer is linear, changed in place.

    Returns
    -------
    NormalizedLinear
        The head.

    Raises
    ------
    ConfigError
        If the network has no such head.
    """
    names = {name.rpartition(".")[0] for name in head_parameters(backbone)}
    head = backbone.get_submodule(names.pop()) if len(names) == 1 else None
    if isinstance(head, NormalizedLinear):
        return head
    if not isinstance(head, nn.Linear) or head.bias is None:
        raise ConfigError(f"{setting('initial_head')} fitted needs a network with a linear head; use random")
    normalized = NormalizedLinear(head.in_features, head.out_features).to(head.weight.device)
    normalized.weight, normalized.bias = head.weight, head.bias
    path = next(name for name, module in backbone.named_modules() if module is head)
    parent, _, attribute = path.rpartition(".")
    setattr(backbone.get_submodule(parent), attribute, normalized)
    return normalized


def has_normalized_head(names: Iterable[str]) -> bool:
    """Whether these names of tensors are those of a network with a `NormalizedLinear`."""
    return any(name.rpartition(".")[2] == CENTER for name in names)
