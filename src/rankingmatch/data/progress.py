"""How reading images reports its progress; drawing it is up to the caller."""

from collections.abc import Callable

__all__ = ["Progress", "no_progress"]

Progress = Callable[[str, int, int | None], None]
"""Called with a task, the amount done and the total amount (None if unknown) as work goes on."""


def no_progress(task: str, done: int, total: int | None) -> None:
    """Ignore all reports: the default."""
