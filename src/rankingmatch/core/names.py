"""Names of files and classes as text: they may contain any character, and bytes that are not UTF-8."""

import os

__all__ = ["printable", "text_name", "to_utf8"]


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
