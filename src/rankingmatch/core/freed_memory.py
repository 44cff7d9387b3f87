"""What happens to memory that a step of training has freed."""

import ctypes

__all__ = ["keep_freed_memory"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGE = 1 << 30  # bytes


def keep_freed_memory() -> None:
    """Let this process reuse the memory that it frees, instead of returning it to the system.

    glibc returns blocks of many megabytes at once, and a step of training asks for the same ones again: the system
    clears every page anew, which takes long on a CPU. Other allocators are left as they are.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    set_option(M_MMAP_THRESHOLD, LARGE)
    set_option(M_TRIM_THRESHOLD, LARGE)
