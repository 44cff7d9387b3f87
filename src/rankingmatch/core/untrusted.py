"""Reading files that anyone may have written: only regular files, up to a size, with values of the declared types.

Everything that is wrong with a file is a `BadFileError`, whose message says what; the caller adds the file's name.
"""

import dataclasses
import json
import math
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from rankingmatch.core.names import text_name

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

MOST_JSON = 2**24  # bytes of a JSON file: values in memory take up to thirty times as much
LONGEST_TEXT = 2**16  # characters of a value
MOST_HEADER = 2**23  # bytes of a safetensors file
MOST_TENSOR_FILE = 2**40
MOST_TENSORS = 100_000
SIZES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}


class BadFileError(ValueError):
    """A file that is not what it should be."""


# --- files ---------------------------------------------------------------------------------------------------


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most this many bytes.

    A device or a named pipe is refused without waiting for it. Raises FileNotFoundError if there is no such file.
    """
    require_regular(path, most)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)  # the name may have got another file since
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


# --- JSON ----------------------------------------------------------------------------------------------------


def _finite(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A function that reads a number; NaN, infinity and huge numbers are refused, which Python would accept."""

    def read(digits: str) -> Any:
        if not math.isfinite(float(digits)):
            raise BadFileError(f"it has the value {digits[:20]}")
        return kind(digits)

    return read


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text, whose numbers are finite."""
    try:
        return json.loads(text, parse_constant=_finite(float), parse_int=_finite(int), parse_float=_finite(float))
    except (ValueError, RecursionError) as error:
        raise BadFileError(f"it is not JSON: {error}"[:300]) from error


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in a text."""
    values = parse_json(text)
    if not isinstance(values, dict):
        raise BadFileError("it is not a JSON object")
    return values


def read_json(path: Path, most: int = MOST_JSON) -> dict[str, Any]:
    """The JSON object in a file."""
    return parse_object(read_bytes(path, most))


def read_json_lines(path: Path, most: int = 4 * MOST_JSON) -> Iterator[dict[str, Any]]:
    """The JSON objects in the lines of a file, without a last line that a crash cut short."""
    for number, line in enumerate(read_bytes(path, most).split(b"\n")[:-1], 1):
        with in_line(number):
            values = parse_object(line)
        yield values


@contextmanager
def in_line(number: int) -> Iterator[None]:
    """Add the number of a line to the message of a BadFileError."""
    try:
        yield
    except BadFileError as error:
        raise BadFileError(f"line {number}: {error}") from error


# --- types ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Between:
    """The smallest and the largest number allowed, for a type `Annotated[int, Between(1, 4096)]`."""

    low: float
    high: float


Size = Annotated[int, Between(0, 2**53)]

# Which values a type accepts, and what a message calls them.
PLAIN: dict[type, tuple[Callable[[Any], bool], str]] = {
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (lambda value: type(value) is int and abs(value) < 2**63, "a whole number"),
    float: (lambda value: type(value) in (int, float) and abs(value) < 1e300, "a finite number"),
    str: (lambda value: isinstance(value, str) and len(value) <= LONGEST_TEXT, "a string"),
    dict: (lambda value: isinstance(value, dict), "an object"),
    list: (lambda value: isinstance(value, (list, tuple)), "a list"),
}


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
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind is Any:
        return value
    if kind is Annotated:
        number, between = check_value(name, value, inner[0]), inner[1]
        if not between.low <= number <= between.high:
            raise BadFileError(f"{name} is {number}; it must be between {between.low} and {between.high}")
        return number
    if kind in (Union, UnionType):
        (plain,) = (part for part in inner if part is not NoneType)
        return None if value is None else check_value(name, value, plain)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return typed(kind, check_value(name, value, dict))
    good, expected = PLAIN[list if kind is tuple else kind]
    if not good(value):
        raise BadFileError(f"{name} is {value!r:.50}; it must be {expected}")
    if kind not in (tuple, list):
        return value
    hints = inner[:1] * len(value) if kind is list or inner[1:] == (Ellipsis,) else inner
    if len(hints) != len(value):
        raise BadFileError(f"{name} is {value!r:.50}; it must be a list of {len(hints)}")
    return kind(check_value(name, one, of) for one, of in zip(value, hints, strict=True))


# --- tensors -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TensorHeader:
    """What a safetensors file says of itself: the shape of each tensor, and strings by name."""

    shapes: dict[str, tuple[int, ...]]
    metadata: dict[str, str]


def read_tensor_header(path: Path) -> TensorHeader:
    """The header of a safetensors file; raises BadFileError if it is damaged, or not a regular file."""
    require_regular(path, MOST_TENSOR_FILE, least=8)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > min(MOST_HEADER, size - 8):
            raise BadFileError("its header is damaged or too long")
        values = parse_object(file.read(length))
    metadata = values.pop("__metadata__", {})
    strings = isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())
    if not strings or len(values) > MOST_TENSORS:
        raise BadFileError("its header is damaged")
    shapes, total = {}, 0
    for name, about in values.items():
        if not isinstance(about, dict):
            raise BadFileError("its header is damaged")
        shape = check_value("shape", about.get("shape"), list[Annotated[int, Between(0, 2**40)]])
        if len(shape) > 16:
            raise BadFileError("its header is damaged")
        shapes[name] = tuple(shape)
        total += math.prod(shape) * SIZES.get(check_value("dtype", about.get("dtype"), str), 1)
    if total > size:  # stored once each: a header could otherwise have many names for the same bytes
        raise BadFileError("its header has more tensors than the file")
    return TensorHeader(shapes, metadata)


def read_tensors(path: Path, device: str = "cpu") -> "dict[str, Tensor]":
    """The tensors of a safetensors file whose header was read; raises BadFileError if it is damaged."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load

    try:
        if text_name(str(path)) != str(path):  # safetensors opens only paths in UTF-8
            return {name: tensor.to(device) for name, tensor in load(path.read_bytes()).items()}
        with safe_open(path, "pt", device=device) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise BadFileError(str(error)) from error


def require_finite(tensors: "dict[str, Tensor]") -> None:
    """Raise BadFileError if a tensor has NaN or infinity: a model with such weights predicts nonsense."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise BadFileError(f"its tensor {name[:100]} has values that are NaN or infinite")
