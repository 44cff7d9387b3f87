"""Standard input, output and error, which may be closed, full, or unable to show every character."""

import os
import sys
from typing import TextIO

__all__ = ["prepare_streams", "settle_output", "was_closed"]

_closed: set[str] = set()


def prepare_streams() -> None:
    """Put /dev/null in the place of closed streams, and let the others show any character.

    Otherwise the next file that is opened would get the number of the closed stream, and with it what other libraries
    write to standard error.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if not _is_open(number):
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            _closed.add(name)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))
        elif name == "stdout" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # as Python does for standard error


def was_closed(name: str) -> bool:
    """Whether a stream was closed when the command started."""
    return name in _closed


def settle_output() -> None:
    """Write what is left for standard output; if it takes no more, discard it, or Python would try again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
