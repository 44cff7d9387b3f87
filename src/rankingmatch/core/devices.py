"""Which device to compute on."""

import torch

from rankingmatch.core.distributed import own_device
from rankingmatch.core.errors import ConfigError, first_line, setting

__all__ = ["find_device"]


def find_device(name: str) -> torch.device:
    """The device called `name`; "auto" is the accelerator if there is one, otherwise the CPU.

    Raises ConfigError if it cannot be used.
    """
    if name == "auto":
        return own_device(torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu"))
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"{setting('device')} {name} cannot be used here ({first_line(error)})") from error
    return own_device(device)
