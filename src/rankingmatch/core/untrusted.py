"""Reading files that anyone may have written: only regular files, up to a size, with values of the declared types.

Everything that is wrong with a file is a `BadFileError`, whose message says what; the caller adds the file's name.
"""

import dataclasses
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = [
    "BadFileError",
    "Between",
    "check_value",
    "in_line",
    "parse_json",
    "read_bytes",
    "read_json_lines",
    "require_regular",
    "typed",
]

T = TypeVar("T")

MOST_JSON = 2**24  # bytes of a JSON file: values in memory take up to thirty times as much
LONGEST_TEXT = 2**16  # characters of a value
LONGEST_NUMBER = 400  # digits: Python takes quadratic time to read a number


class BadFileError(ValueError):
    """A file that is not what it should be."""


@dataclasses.dataclass(frozen=True)
class Between:
    """The smallest and the largest number allowed, for a type `Annotated[int, Between(1, 4096)]`."""

    low: float
    high: float


Size = Annotated[int, Between(0, 2**53)]


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most this many bytes.

    A device or a named pipe is refused without waiting for it. Raises FileNotFoundError if there is no such file.
    """
    require_regular(path, most)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        _check_status(status, most)
        return file.read(status.st_size)  # not `most`, which Python would allocate


def require_regular(path: Path, most: int, least: int = 0) -> None:
    """Raise BadFileError unless a file is a regular one whose number of bytes is in this range, without opening it.

    Opening a named pipe would wait for someone to write to it, and some devices act when they are opened. Files of the
    system, such as /proc/kmsg, have no bytes, and reading them may take forever.
    """
    status = path.stat()
    _check_status(status, most)
    if status.st_size < least:
        raise BadFileError("it is empty" if status.st_size == 0 else "it is too short")


def _check_status(status: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise BadFileError("it is not a regular file")
    if status.st_size > most:
        raise BadFileError(f"it has {status.st_size:,} bytes, more than the {most:,} that such a file may have")


def read_text(path: Path, most: int = MOST_JSON) -> str:
    """The content of a regular file of at most this many bytes, in UTF-8."""
    return read_bytes(path, most).decode()


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text without NaN, infinity and huge numbers, which Python would accept."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_short_int, parse_float=_finite_float)
    except (ValueError, RecursionError) as error:
        raise BadFileError(f"it is not JSON: {error}"[:300]) from error


def read_json(path: Path, most: int = MOST_JSON) -> dict[str, Any]:
    """The JSON object in a file."""
    values = parse_json(read_bytes(path, most))
    if not isinstance(values, dict):
        raise BadFileError("it is not a JSON object")
    return values


def read_json_lines(path: Path, most: int = 4 * MOST_JSON) -> Iterator[dict[str, Any]]:
    """The JSON objects in the lines of a file, without a last line that a crash cut short."""
    for number, line in enumerate(read_bytes(path, most).split(b"\n")[:-1], 1):
        with in_line(number):
            values = parse_json(line)
            if not isinstance(values, dict):
                raise BadFileError("it is not a JSON object")
        yield values


@contextmanager
def in_line(number: int) -> Iterator[None]:
    """Add the number of a line to the message of a BadFileError."""
    try:
        yield
    except BadFileError as error:
        raise BadFileError(f"line {number}: {error}") from error


def _refuse_constant(name: str) -> Any:
    raise BadFileError(f"it has the value {name}")


def _short_int(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise BadFileError(f"it has a number of {len(digits):,} digits")
    return int(digits)


def _finite_float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise BadFileError(f"it has the value {digits[:20]}")
    return value


# --- types ---------------------------------------------------------------------------------------------------


def typed(kind: type[T], values: Mapping[str, Any]) -> T:
    """An object of a dataclass from plain values, each of which must have the declared type."""
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(values.keys() - fields.keys()):
        raise BadFileError(f"it has an unknown value {unknown[0]!r:.50}")
    for name, field in fields.items():
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name not in values and not has_default:
            raise BadFileError(f"it has no {name}")
    return kind(**{name: check_value(name, value, hints[name]) for name, value in values.items()})


def check_value(name: str, value: Any, hint: Any) -> Any:
    """A plain value as the declared type; BadFileError if it is of another type or too large."""
    if get_origin(hint) is Annotated:
        plain, between = get_args(hint)
        number = check_value(name, value, plain)
        if not between.low <= number <= between.high:
            raise BadFileError(f"{name} is {number}; it must be between {between.low} and {between.high}")
        return number
    if get_origin(hint) in (Union, UnionType):
        return None if value is None else check_value(name, value, _without_none(hint))
    if get_origin(hint) in (tuple, list):
        return _check_items(name, value, hint)
    if hint is Any:
        return value
    if get_origin(hint) is dict or hint is dict:
        return _check(name, value, isinstance(value, dict), "an object")
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return _check(name, value, number and abs(value) < 1e300, "a finite number")
    if hint is int:
        return _check(name, value, type(value) is int and abs(value) < 2**63, "a whole number")
    if hint is str:
        return _check(name, value, isinstance(value, str) and len(value) <= LONGEST_TEXT, "a text")
    if hint is bool:
        return _check(name, value, isinstance(value, bool), "true or false")
    raise TypeError(f"{name} is declared as {hint}")


def _check_items(name: str, value: Any, hint: Any) -> Any:
    """A list as the declared tuple or list."""
    _check(name, value, isinstance(value, (list, tuple)), "a list")
    inner = get_args(hint)
    if get_origin(hint) is tuple and (len(inner) != 2 or inner[1] is not Ellipsis):
        _check(name, value, len(value) == len(inner), f"a list of {len(inner)}")
        return tuple(check_value(name, one, kind) for one, kind in zip(value, inner, strict=True))
    return (get_origin(hint) or list)(check_value(name, one, inner[0]) for one in value)


def _check(name: str, value: Any, good: bool, expected: str) -> Any:
    if not good:
        raise BadFileError(f"{name} is {value!r:.50}; it must be {expected}")
    return value


def _without_none(hint: Any) -> Any:
    (inner,) = (part for part in get_args(hint) if part is not NoneType)
    return inner
