"""Stopping cleanly on a signal."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["stop_requests"]


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
