"""The terminal: standard streams, which may be closed or full; consoles that take no name for markup; Ctrl-C."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TextColumn

FILE_WIDTH = 160  # characters of a table, if the output is not a terminal
_closed: set[str] = set()


def prepare_streams() -> None:
    """Put /dev/null in the place of closed streams, and let the others show any character.

    Otherwise the next file that is opened would get the number of the closed stream, and with it what other libraries
    write to standard error.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # it is closed
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


def plain_console(*, stderr: bool = False, wide: bool = False) -> "Console":
    """A console that takes nothing in a text for markup; with `wide`, files are wider than a terminal."""
    from rich.console import Console

    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if wide and not console.is_terminal:
        console.width = FILE_WIDTH
    return console


def task_column(text: str = "{task.description}") -> "TextColumn":
    """A text of a progress bar, which is not taken for markup."""
    from rich.progress import TextColumn

    return TextColumn(text, markup=False)


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Inside, SIGINT and SIGTERM are only recorded; the function it yields tells whether one has arrived."""
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, handler in handlers.items():
            if handler is not signal.SIG_IGN:  # nohup and the like ignore signals on purpose
                signal.signal(number, lambda arrived, _: received.append(arrived))
        yield lambda: bool(received)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
