"""What a command may find itself in: each function is called in its process, before it starts."""

import os
import shutil
import sys
from functools import partial
from pathlib import Path

from limits import limit_addresses


def _close(*names: str) -> None:
    """Close streams, as Python finds them after `<&-`, `>&-` or `2>&-` in a shell."""
    for name in names:
        os.close(("stdin", "stdout", "stderr").index(name))
        setattr(sys, name, None)


without_input, without_output, without_error = (partial(_close, name) for name in ("stdin", "stdout", "stderr"))
without_streams = partial(_close, "stdin", "stdout", "stderr")


def _redirect_output(descriptor: int) -> None:
    os.dup2(descriptor, 1)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115


def with_full_output() -> None:
    _redirect_output(os.open("/dev/full", os.O_WRONLY))


def with_output_nobody_reads() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    _redirect_output(writing)


def with_ascii_output() -> None:
    sys.stdout.reconfigure(encoding="ascii", errors="strict")  # type: ignore[union-attr]


def without_current_directory() -> None:
    shutil.rmtree(Path.cwd())


with_little_memory = partial(limit_addresses, 2**29)
