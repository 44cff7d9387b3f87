"""The table of networks by name.

A network is a factory ``(channels, classes) -> torch.nn.Module``. The module takes normalized float images
(n, channels, height, width) and returns logits (n, classes), or the pair of logits and features (n, width). A factory
that has pretrained weights also takes the keyword `pretrained`.
"""

from collections.abc import Callable

from torch import nn

from rankingmatch.core.errors import ConfigError

__all__ = ["NETWORKS", "NetworkFactory", "register_network"]

NetworkFactory = Callable[..., nn.Module]

NETWORKS: dict[str, NetworkFactory] = {}


def register_network(name: str, factory: NetworkFactory) -> None:
    """Add a network to `NETWORKS`, so that it can be used by name.

    A saved model stores only the name of its network: register the network before you load the model.

    Parameters
    ----------
    name : str
        A name that no other network has, without a colon.
    factory : callable
        ``factory(channels, classes)`` returns a `torch.nn.Module`. If the network has pretrained weights, the factory
        also takes the keyword `pretrained`, a bool.

    Raises
    ------
    ConfigError
        If the name is taken or contains a colon.
    """
    if name in NETWORKS:
        raise ConfigError(f"there is already a network '{name}'; choose another name")
    if ":" in name:
        raise ConfigError(f"a network cannot be named '{name}': a colon marks an import path; choose another name")
    NETWORKS[name] = factory
