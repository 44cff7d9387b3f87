"""One declaration per hyperparameter: default, type, help, allowed values and flag come from one place.

A settings class is a dataclass whose fields are made by `option`. The command line turns the fields into
flags, recipes and `config.json` name them, and `validate` checks them wherever they come from.
"""

import dataclasses
import os
from dataclasses import dataclass
from inspect import get_annotations
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from rankingmatch.core.errors import ConfigError, setting, unknown_name
from rankingmatch.core.names import printable

Kind = Literal["learning", "source", "labels", "execution", "run"]
TINY, HUGE = 1e-30, 1e30  # what a network computes with: float32 has 1e-38 to 3e38


def option(
    default: Any,
    help: str,
    *,
    interval: str = "",
    used_by: tuple[str, ...] = (),
    kind: Kind = "learning",
    path: bool = False,
) -> Any:
    """Declare a hyperparameter: a dataclass field with all that interfaces need to know of it.

    Parameters
    ----------
    default
        The default value.
    help
        One or two sentences; a name in braces, such as ``{epochs}``, is another option.
    interval
        The allowed values, written as in mathematics: "(0, 1]", "[1, inf)".
    used_by
        The variants of a method that have it; all of them by default.
    kind
        What it is about. "learning": what is learned. "source": where images come from. "labels": which labels and
        validation images are used. "execution": where and how to compute, which changes no result but for rounding.
        "run": what is written into a run directory.
    path
        Whether it is the path of a file or directory.
    """
    about = {"help": help, "interval": interval, "used_by": used_by, "kind": kind, "path": path}
    return dataclasses.field(default=default, metadata=about)


@dataclass(frozen=True)
class Option:
    """A declared hyperparameter, as interfaces and docs see it."""

    name: str
    type: type
    default: Any
    choices: tuple[str, ...]
    optional: bool
    help: str
    interval: str
    used_by: tuple[str, ...]
    kind: Kind
    path: bool

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return flag(self.name)


def flag(name: str) -> str:
    """An option's name on the command line: learning_rate → --learning-rate."""
    return "--" + name.replace("_", "-")


def options_of(settings: type) -> list[Option]:
    """The options declared by a settings class, in order; inherited ones are last."""
    hints, own = get_type_hints(settings), get_annotations(settings)
    fields = [field for field in dataclasses.fields(settings) if "help" in field.metadata]
    options = []
    for field in sorted(fields, key=lambda field: field.name not in own):
        hint = hints[field.name]
        if optional := get_origin(hint) is UnionType:
            (hint,) = (part for part in get_args(hint) if part is not NoneType)
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        of_type = str if choices else hint
        options.append(Option(field.name, of_type, field.default, choices, optional, **field.metadata))
    return options


def validate(settings: Any) -> None:
    """Raise ConfigError for the first field of a settings object whose value is not allowed."""
    for option in options_of(type(settings)):
        check(option, getattr(settings, option.name))


def check(option: Option, value: Any) -> None:
    """Raise ConfigError unless `value` has the option's type and lies in its interval or choices."""
    name = setting(option.name)
    if value is None and option.optional:
        return
    accepted: Any = (int, float) if option.type is float else option.type
    if not (isinstance(value, accepted) and isinstance(value, bool) == (option.type is bool)):
        raise ConfigError(f"{name} is {value!r}; it must be of type {option.type.__name__}")
    if option.path and (not value or "\0" in value):
        raise ConfigError(f"{name} is {printable(value) or 'empty'}; give a path, or remove the option")
    if option.choices and value not in option.choices:
        raise unknown_name(f"value for {name}", value, option.choices)
    if option.interval and not _inside(value, option.interval):
        raise ConfigError(f"{name} is {value}; it must be in {option.interval}")
    if option.type is int and abs(value) >= 2**63:  # files with larger numbers are refused when they are read
        raise ConfigError(f"{name} is {value}; it must be below 2^63")
    if option.type is float and value and not TINY <= abs(value) <= HUGE:
        raise ConfigError(f"{name} is {value}; it must be 0, or between {TINY:g} and {HUGE:g}")


def absolute_path(name: str, path: str | Path) -> Path:
    """The path that an option has, without links, valid from any directory; ConfigError for a link to itself."""
    found = Path(os.path.realpath(path))
    if found.is_symlink():
        raise ConfigError(f"{setting(name)} {path} is a link to itself; choose another one")
    return found


def _inside(value: float, interval: str) -> bool:
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    return above and below
