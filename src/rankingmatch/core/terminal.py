"""Text on a terminal: names are shown as they are, though rich would take `[bold]` in them for a command."""

from rich.console import Console
from rich.progress import TextColumn

__all__ = ["TaskColumn", "plain_console"]

FILE_WIDTH = 160  # characters of a table, if the output is not a terminal


def plain_console(*, stderr: bool = False, wide: bool = False) -> Console:
    """A console that takes nothing in a text for markup; with `wide`, files are wider than a terminal."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if wide and not console.is_terminal:
        console.width = FILE_WIDTH
    return console


class TaskColumn(TextColumn):
    """A text of a progress bar, which is not taken for markup."""

    def __init__(self, text_format: str = "{task.description}") -> None:
        super().__init__(text_format, markup=False)
