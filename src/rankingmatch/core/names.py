"""Names of files and classes: in messages, as text, as folders. They may hold any character, and bytes not in UTF-8."""

import os
from collections.abc import Sequence

__all__ = ["first_few", "folder_names", "printable", "text_name", "to_utf8"]

NAMES_SHOWN = 5


def printable(name: str) -> str:
    """Escape the characters of a name that cannot be printed, such as line breaks and undecodable bytes.

    Parameters
    ----------
    name
        A file or class name.

    Returns
    -------
    str
        The name on one line.
    """
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in name)


def text_name(name: str) -> str:
    r"""The name of a file as text that every file format can hold: a byte that is not UTF-8 becomes ``\xe9``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def to_utf8(text: str) -> bytes:
    r"""A text in UTF-8; an undecodable byte of a path in it becomes ``\udce9``, which JSON reads as the same path."""
    return text.encode("utf-8", "backslashreplace")


def first_few(names: list[str]) -> str:
    """Join the first few names of a list on one line, whatever they contain.

    Parameters
    ----------
    names
        Any number of names.

    Returns
    -------
    str
        The first five, separated by commas, and how many more there are.
    """
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(printable(name) for name in names[:NAMES_SHOWN]) + more


def folder_names(classes: Sequence[str]) -> list[str]:
    """Choose a folder name for each class, so that no two classes share a folder.

    Parameters
    ----------
    classes
        Class names, all different.

    Returns
    -------
    list of str
        The class names without characters that file names cannot have, and with numbers where they would be the same,
        also on a file system that does not distinguish upper and lower case.
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
