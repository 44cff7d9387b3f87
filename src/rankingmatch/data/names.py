"""Names of files and classes as messages show them."""

__all__ = ["first_few", "printable"]

NAMES_SHOWN = 5


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
