"""Semi-supervised methods by name. To add one: a class in the module of its family, which registers itself.

The functions share these parameters: `name`, a name in `METHODS` or the import path ``package.module:Class`` of a
subclass of `Method`, and `hyperparameters`, the values of those that do not have their defaults. They raise
`ConfigError` if there is no such method, or a hyperparameter is unknown or not allowed.

Examples
--------
>>> from rankingmatch.methods import make_method
>>> method = make_method("fixmatch-ra", {"threshold": 0.9})
"""

from collections.abc import Mapping
from typing import Any

from rankingmatch.core.errors import ConfigError, setting, unknown_name
from rankingmatch.core.imports import import_object
from rankingmatch.core.options import Option, options_of, validate

# isort: off
# Each module registers its methods when it is imported: this is the order of all lists.
from rankingmatch.methods import consistency, generative, mixing, fixmatch, features, rankingmatch  # noqa: F401

# isort: on
from rankingmatch.methods import passes, rebalancing, targets
from rankingmatch.methods.protocol import METHODS, Batch, Context, Losses, Method, MethodInfo, PseudoLabels, Task

__all__ = [
    "METHODS",
    "Batch",
    "Context",
    "Losses",
    "Method",
    "MethodInfo",
    "PseudoLabels",
    "Task",
    "find_method",
    "hyperparameters_of",
    "make_method",
    "mixing",
    "passes",
    "rebalancing",
    "targets",
]


def find_method(name: str) -> MethodInfo:
    """Find the class of a method, and what is known about it."""
    if ":" not in name:
        if name not in METHODS:
            raise unknown_name("method", name, METHODS, " (or package.module:Class)")
        return METHODS[name]
    found = import_object("method", name)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ConfigError(f"method '{name}' is not a subclass of rankingmatch.methods.Method")
    if "__dataclass_fields__" not in vars(found) or found.__hash__ is None:
        raise ConfigError(f"method '{name}' must be decorated with @dataclass(eq=False)")
    return MethodInfo(found)


def hyperparameters_of(name: str) -> list[Option]:
    """List the hyperparameters of a method, with default, help text and allowed values of each."""
    info = find_method(name)
    variants = set(info.variant.split("+"))
    return [option for option in options_of(info.method) if not option.used_by or variants.intersection(option.used_by)]


def make_method(name: str, hyperparameters: Mapping[str, Any] | None = None) -> Method:
    """Make a method; call its `prepare` before the first step."""
    info, given = find_method(name), hyperparameters or {}
    known = [option.name for option in hyperparameters_of(name)]
    for other in given:
        if other not in known:
            names = ", ".join(map(setting, known)) or "none"
            raise ConfigError(f"{setting(other)} is not used by the method '{name}'; its hyperparameters: {names}")
    variant = {"ranking": info.variant} if info.variant else {}
    method = info.method(**variant, **given)
    validate(method)
    return method


def __dir__() -> list[str]:
    return __all__
