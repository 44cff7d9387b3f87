"""Peak memory: of the accelerator if there is one, otherwise of this process."""

import contextlib
import sys
from pathlib import Path

import torch

_PROCESS = Path("/proc/self")


def reset_peak_memory(device: torch.device) -> None:
    """Restart the measurement of the peak; where the system cannot, the peak since the process started is kept."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):  # Linux: 5 resets the high-water mark of the resident memory
            (_PROCESS / "clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Bytes at the peak since the last reset."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError, StopIteration):
        lines = (_PROCESS / "status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    import resource  # not on every system

    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else 1024 * usage
