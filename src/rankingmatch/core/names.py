"""Names of files and classes that others chose: in messages, on consoles, in folders and in CSV files.

They may hold any character, and bytes that are not UTF-8. Rich takes `[red]` for a color, some readers of CSV files
take `=1+1` for a formula and a carriage return for the end of a line.
"""

import csv
import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TextColumn

NAMES_SHOWN = 5
FILE_WIDTH = 160  # characters of a table, if the output is not a terminal
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets take a cell that begins like this for a formula


def printable(name: str) -> str:
    """The name on one line: what cannot be printed is escaped, such as line breaks and undecodable bytes."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in name)


def text_name(name: str) -> str:
    r"""The name of a file as text that every file format can hold: a byte that is not UTF-8 becomes ``\xe9``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def to_utf8(text: str) -> bytes:
    r"""Text in UTF-8; an undecodable byte of a path in it becomes ``\udce9``, which JSON reads as the same path."""
    return text.encode("utf-8", "backslashreplace")


def first_few(names: list[str]) -> str:
    """The first five names on one line, separated by commas, and how many more there are."""
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(printable(name) for name in names[:NAMES_SHOWN]) + more


def folder_names(classes: Sequence[str]) -> list[str]:
    """A folder name for each class, so that no two classes share a folder.

    Characters that file names cannot have are replaced, and names that would be the same get numbers, also on a file
    system that does not distinguish upper and lower case.
    """
    names: list[str] = []
    taken: set[str] = set()
    exact = {label.casefold() for label in classes}
    for label in classes:
        plain = "".join("_" if letter in "/\0" or letter == os.sep else letter for letter in label)
        plain = f"_{plain}" if not plain or plain.startswith(".") else plain
        name, number = plain, 1
        while name.casefold() in taken or (name != label and name.casefold() in exact):
            number += 1
            name = f"{plain}-{number}"
        names.append(name)
        taken.add(name.casefold())
    return names


# --- consoles ------------------------------------------------------------------------------------------------


def plain_console(*, stderr: bool = False, wide: bool = False) -> "Console":
    """A console that takes no text for markup; with `wide`, files are wider than a terminal."""
    from rich.console import Console

    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if wide and not console.is_terminal:
        console.width = FILE_WIDTH
    return console


def task_column(text: str = "{task.description}") -> "TextColumn":
    """A text of a progress bar that is not taken for markup."""
    from rich.progress import TextColumn

    return TextColumn(text, markup=False)


# --- CSV files -----------------------------------------------------------------------------------------------


def row_writer(file: IO[str]) -> Callable[[Iterable[str]], object]:
    """A function that writes a row; a cell with a comma, a quote or any line break is quoted."""
    plain = csv.writer(file, lineterminator="\n")
    quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)

    def write(cells: Iterable[str]) -> object:
        row = list(cells)
        # Before Python 3.13, a carriage return was not quoted, which readers take for the end of the row.
        return (quoted if any("\r" in cell for cell in row) else plain).writerow(row)

    return write


def csv_text(rows: Iterable[Iterable[str]]) -> str:
    """Rows as the content of a CSV file."""
    text = io.StringIO()
    write = row_writer(text)
    for row in rows:
        write(row)
    return text.getvalue()


def text_cell(text: str) -> str:
    """A name in a cell: one that a spreadsheet would compute as a formula gets an apostrophe; numbers stay."""
    try:
        float(text)
    except ValueError:
        return f"'{text}" if _may_be_formula(text) else text
    return text


def name_in_cell(cell: str) -> str:
    """The name in a cell: the inverse of `text_cell`."""
    return cell[1:] if cell.startswith("'") and _may_be_formula(cell) else cell


def file_cell(name: str) -> str:
    """A file name in a cell: one that looks like a formula begins with ./, which is the same file."""
    return f"./{name}" if name.startswith(FORMULA) else name


def _may_be_formula(text: str) -> bool:
    return text.lstrip("'").startswith(FORMULA)  # with an apostrophe, too: otherwise it could not be told from ours
