"""How reading images reports its progress; drawing it is up to the caller."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Progress", "no_progress", "under_way"]

Progress = Callable[[str, int, int | None], None]
"""Called with a task, the amount done and the total amount (None if unknown) as work goes on."""


def no_progress(task: str, done: int, total: int | None) -> None:
    """Ignore all reports: the default."""


@contextmanager
def under_way(progress: Progress, task: str) -> Iterator[None]:
    """Report a task of unknown length at its beginning and at its end."""
    progress(task, 0, None)
    try:
        yield
    finally:
        progress(task, 1, 1)
