"""Which device to compute on, and in which precision."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from rankingmatch.core.distributed import own_device
from rankingmatch.core.errors import ConfigError, first_line, setting

__all__ = ["autocast", "computes_bfloat16", "find_device", "full_precision", "on_threads"]


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


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[None]:
    """Context manager: matrix products and convolutions on this device in `dtype`; float32 changes nothing."""
    if dtype == torch.float32 or not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, dtype)


def computes_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions for bfloat16; a CPU without them is slower in bfloat16 than in float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return any(has for name, has in torch.cpu.get_capabilities().items() if name.endswith("bf16"))
    return False


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Context manager: no autocast, since distances and similarities need more digits than bfloat16 has."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


@contextmanager
def on_threads(threads: int | None) -> Iterator[None]:
    """Use this many CPU threads and deterministic kernels; restore the previous settings afterwards."""
    before = torch.get_num_threads(), torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        torch.set_num_threads(threads or before[0])
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before[1:]
