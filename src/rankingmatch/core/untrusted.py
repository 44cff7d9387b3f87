"""Reading files that anyone may have written: only regular files, up to a size, with values of the declared types.

Everything that is wrong with a file is a `BadFileError`, whose message says what; the caller adds the file's name.
"""

import json
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from rankingmatch.core.errors import RunError
from rankingmatch.core.names import text_name

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

MOST_JSON = 2**24  # bytes of a JSON file: values in memory take up to thirty times as much
LONGEST_TEXT = 2**16  # characters of a value
MOST_HEADER = 2**23  # bytes of a safetensors file
SIZES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}

# The format number of every kind of file that we write. A change that an older version could not read gets the next
# number. A file without a number has format 1: it was written before files had numbers.
FORMATS = {
    "config": 2,  # 2: `licence` became `license`
    "split": 2,  # 2: the unlabeled images, if some are left out
    "metrics": 1,  # each line of metrics.jsonl, and each event that a command prints as JSON
    "result": 2,  # 2: balanced errors, and the recall of each class
    "checkpoint": 3,  # 2: CTAugment's rates by the name of the operation; 3: learned labels as a module of the method
    "model": 3,  # 2: whether images are cropped or squeezed to the shape; 3: how files are read
}


class BadFileError(ValueError):
    """A file that is not what it should be."""


# --- files ---------------------------------------------------------------------------------------------------


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most this many bytes; FileNotFoundError if there is none."""
    require_regular(path, most)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        require_regular(descriptor, most)  # the name may have got another file since
        return file.read(os.fstat(descriptor).st_size)  # not `most`, which Python would allocate


def require_regular(file: Path | int, most: int) -> None:
    """Raise BadFileError unless a path or open file is a regular one of at most this many bytes.

    It is not opened: opening a named pipe would wait for someone to write to it, and some devices act when they are
    opened. Files of the system, such as /proc/kmsg, have no bytes, and reading them may take forever.
    """
    status = os.fstat(file) if isinstance(file, int) else file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise BadFileError("it is not a regular file")
    if status.st_size > most:
        raise BadFileError(f"it has {status.st_size:,} bytes, more than the {most:,} that such a file may have")


def check_format(kind: str, values: Mapping[str, Any], path: Path) -> None:
    """Raise RunError if a file was written by a newer version of this package than the one that reads it."""
    found = values.get("format", 1)
    if type(found) is not int or found < 1:
        raise RunError(f"{path}: format is {found!r}; it must be a positive number, or the file is damaged")
    if found > FORMATS[kind]:
        raise RunError(
            f"{path} was written by a newer version of rankingmatch (format {found}; this version reads up to "
            f"{FORMATS[kind]}); upgrade rankingmatch to use it"
        )


# --- JSON ----------------------------------------------------------------------------------------------------


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; NaN, infinity and huge numbers are refused, which Python would accept."""

    def finite(digits: str) -> float:
        if not math.isfinite(number := float(digits)):
            raise BadFileError(f"it has the value {digits[:20]}")
        return int(digits) if digits.lstrip("-").isdigit() else number

    try:
        return json.loads(text, parse_constant=finite, parse_int=finite, parse_float=finite)
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


@dataclass(frozen=True)
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
    required = {field.name: field.default is field.default_factory is MISSING for field in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(values.keys() - required.keys()):
        raise BadFileError(f"it has an unknown value {unknown[0]!r:.50}")
    if missing := [name for name in required if required[name] and name not in values]:
        raise BadFileError(f"it has no {missing[0]}")
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
    if isinstance(kind, type) and is_dataclass(kind):
        return typed(kind, check_value(name, value, dict))
    good, expected = PLAIN[list if kind is tuple else kind]
    if not good(value):
        raise BadFileError(f"{name} is {value!r:.50}; it must be {expected}")
    if kind is dict and inner:
        return {key: check_value(str(key), one, inner[1]) for key, one in value.items()}
    if kind not in (tuple, list):
        return value
    hints = inner[:1] * len(value) if kind is list or inner[1:] == (Ellipsis,) else inner
    if len(hints) != len(value):
        raise BadFileError(f"{name} is {value!r:.50}; it must be a list of {len(hints)}")
    return kind(check_value(name, one, of) for one, of in zip(value, hints, strict=True))


# --- tensors -------------------------------------------------------------------------------------------------


class TensorHeader(NamedTuple):
    """What a safetensors file says of itself: the shape of each tensor, and strings by name."""

    shapes: dict[str, tuple[int, ...]]
    metadata: dict[str, str]


def read_tensor_header(path: Path) -> TensorHeader:
    """The header of a safetensors file; raises BadFileError if it is damaged, or not a regular file."""
    require_regular(path, most=2**40)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(MOST_HEADER, size - 8):
            raise BadFileError("its header is damaged or too long")
        values = parse_object(file.read(length))
    metadata = values.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise BadFileError("its header is damaged")
    shapes, total = {}, 0
    for name, about in check_value("its header", values, dict[str, dict[str, Any]]).items():
        shape = shapes[name] = tuple(check_value("shape", about.get("shape"), list[Annotated[int, Between(0, 2**40)]]))
        total += math.prod(shape[:16]) * SIZES.get(check_value("dtype", about.get("dtype"), str), 1)
        if len(shape) > 16 or len(shapes) > 100_000:
            raise BadFileError("its header is damaged")
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
