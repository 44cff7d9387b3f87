"""Semi-supervised methods by name. To add one: a file with its class, which registers itself.

The functions share these parameters: `name`, a name in `METHODS` or the import path ``package.module:Class`` of a
subclass of `Method`, and `hyperparameters`, the values of those that do not have their defaults. They raise
`ConfigError` if there is no such method, or a hyperparameter is unknown or not allowed.

Examples
--------
>>> from rankingmatch.methods import make_method
>>> method = make_method("fixmatch-ra", {"threshold": 0.9})
"""

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankingmatch.core.errors import ConfigError, setting, unknown_name
from rankingmatch.core.imports import import_object
from rankingmatch.core.options import Option, options_of, validate
from rankingmatch.methods import mixing, passes, protocol, rebalancing, targets
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, MethodInfo, PseudoLabels, Task

if TYPE_CHECKING:
    from rankingmatch.methods.protocol import METHODS

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

# Modules register their methods when they are imported, which they are when they are needed. This is the order of all
# lists; others follow by name.
_ORDER = (
    *("supervised", "pseudo_label", "pi_model", "mean_teacher", "vat", "swwae", "cc_gan", "uda", "mixmatch", "realmix"),
    *("remixmatch", "fixmatch", "flexmatch", "freematch", "softmatch", "adamatch", "dash", "comatch", "simmatch"),
    *("defixmatch", "refixmatch", "crmatch", "sequencematch", "finessl", "rankingmatch"),
)
_MODULES = list(dict.fromkeys([*_ORDER, *(found.name for found in pkgutil.iter_modules(__path__))]))


def __getattr__(name: str) -> Any:
    """`METHODS`, complete and in order, on its first use."""
    if name != "METHODS":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    order = {import_module(f"{__name__}.{module}").__name__: number for number, module in enumerate(_MODULES)}
    found = sorted(protocol.METHODS.items(), key=lambda item: order.get(item[1].method.__module__, len(order)))
    protocol.METHODS.clear()
    protocol.METHODS.update(found)
    return globals().setdefault("METHODS", protocol.METHODS)


def find_method(name: str) -> MethodInfo:
    """Find the class of a method, and what is known about it."""
    if ":" not in name:
        for module in _MODULES:  # the names of a module's methods begin with its own
            if f"{name.replace('-', '_')}_".startswith(f"{module}_"):
                import_module(f"{__name__}.{module}")
        if name not in protocol.METHODS and name not in __getattr__("METHODS"):
            raise unknown_name("method", name, protocol.METHODS, " (or package.module:Class)")
        return protocol.METHODS[name]
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
