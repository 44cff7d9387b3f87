"""CSV files that other programs read: also those that take `=1+1` for a formula, and a carriage return for a line."""

import csv
import io
from collections.abc import Callable, Iterable
from typing import IO

__all__ = ["csv_text", "file_cell", "name_in_cell", "row_writer", "text_cell"]

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets take a cell that begins like this for a formula


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
    """A name in a cell: one that looks like a formula begins with an apostrophe, as spreadsheets write it.

    A spreadsheet would compute a formula, which may contain a command. Numbers are not changed.
    """
    return f"'{text}" if _may_be_formula(text) and not _is_number(text) else text


def name_in_cell(cell: str) -> str:
    """The name in a cell: the inverse of `text_cell`."""
    return cell[1:] if cell.startswith("'") and _may_be_formula(cell) else cell


def file_cell(name: str) -> str:
    """A file name in a cell: one that looks like a formula begins with ./, which is the same file."""
    return f"./{name}" if name.startswith(FORMULA) else name


def _may_be_formula(text: str) -> bool:
    return text.lstrip("'").startswith(FORMULA)  # with an apostrophe, too: otherwise it could not be told from ours


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
