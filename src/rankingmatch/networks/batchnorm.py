"""The running statistics of BatchNorm layers: how fast they change, and networks in which they do not."""

from functools import cache
from typing import Any, Self

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["batch_norm_of_training", "freeze_batchnorm", "set_batchnorm_momentum"]


def batch_norm_of_training(width: int) -> nn.BatchNorm2d:
    """BatchNorm for a part that is used in training only: it always normalizes by the batch."""
    return nn.BatchNorm2d(width, track_running_stats=False)


def set_batchnorm_momentum(network: nn.Module, momentum: float) -> None:
    """Set the momentum of every BatchNorm layer.

    Parameters
    ----------
    network : torch.nn.Module
        The network, changed in place.
    momentum : float
        The weight of a new batch in the running statistics.
    """
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.momentum = momentum


def freeze_batchnorm(network: nn.Module) -> None:
    """Fix the running statistics of every BatchNorm layer.

    The layers normalize with their running statistics and do not update them, also in training mode and in copies of
    the network: with statistics of pretraining, small batches need not estimate them. Scale and shift stay trainable,
    and the network's `state_dict` has the same names.

    Parameters
    ----------
    network : torch.nn.Module
        The network, changed in place.
    """
    for module in network.modules():
        if isinstance(module, _BatchNorm) and not isinstance(module, _Frozen):
            kind: Any = type(module)
            module.__class__ = _frozen(kind)
            module.eval()


class _Frozen(nn.Module):
    """A layer that stays in evaluation mode."""

    def train(self, mode: bool = True) -> Self:
        return super().train(False)

    def __reduce__(self) -> tuple[Any, ...]:
        # The class is made at run time, so that copy and pickle need the one that it was made from.
        return _empty, (type(self).__mro__[2],), self.__dict__


@cache
def _frozen(kind: Any) -> Any:
    """The subclass of a BatchNorm class whose layers stay in evaluation mode."""
    return type(f"Frozen{kind.__name__}", (_Frozen, kind), {})


def _empty(kind: Any) -> Any:
    frozen = _frozen(kind)
    return frozen.__new__(frozen)
