"""Where to compute, in which precision, on how many threads, and the memory that it takes."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch

from rankingmatch.core.distributed import local_rank, world_size
from rankingmatch.core.errors import ConfigError, first_line, setting

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_PROCESS = Path("/proc/self")


def find_device(name: str) -> torch.device:
    """The device called `name`, or ConfigError; "auto" is the accelerator if there is one, otherwise the CPU.

    Each of several processes has its own GPU.
    """
    if name == "auto":
        device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    else:
        try:
            device = torch.device(name)
            torch.ones(1, device=device).item()
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            raise ConfigError(f"{setting('device')} {name} cannot be used here ({first_line(error)})") from error
    if world_size() == 1 or device.type == "cpu":
        return device
    if device.type != "cuda":
        raise ConfigError(f"{setting('device')} is {device}, but several processes need CPUs or CUDA GPUs; use cpu")
    available = torch.cuda.device_count()
    if local_rank() >= available:
        raise ConfigError(
            f"there are {available} GPUs but more processes; start torchrun with --nproc-per-node {available}"
        )
    torch.cuda.set_device(local_rank())
    return torch.device("cuda", local_rank())


# --- precision and threads -----------------------------------------------------------------------------------


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[None]:
    """Context manager: matrix products and convolutions on this device in `dtype`; float32 changes nothing."""
    if dtype == torch.float32 or not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, dtype)


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Context manager: no autocast, since distances and similarities need more digits than bfloat16 has."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def computes_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions for bfloat16; a CPU without them is slower in bfloat16 than in float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return any(has for name, has in torch.cpu.get_capabilities().items() if name.endswith("bf16"))
    return False


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


# --- memory --------------------------------------------------------------------------------------------------


def keep_freed_memory() -> None:
    """Let this process reuse the memory that it frees, instead of returning it to the system.

    glibc returns blocks of many megabytes at once, and a step of training asks for the same ones again: the system
    clears every page anew, which takes long on a CPU. Other allocators are left as they are.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    set_option(M_MMAP_THRESHOLD, 1 << 30)  # bytes
    set_option(M_TRIM_THRESHOLD, 1 << 30)


def reset_peak_memory(device: torch.device) -> None:
    """Restart the measurement of the peak; where the system cannot, the peak since the process started is kept."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):  # Linux: 5 resets the high-water mark of the resident memory
            (_PROCESS / "clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Bytes of the accelerator, or else of this process, at the peak since the last reset."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError, StopIteration):
        lines = (_PROCESS / "status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    import resource  # not on every system

    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else 1024 * usage
