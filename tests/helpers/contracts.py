"""Contracts between Python and JavaScript: checks values against types, and TypedDicts against JSDoc typedefs."""

import re
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

UNIONS = (types.UnionType, Union)
NUMBERS = {int: (int,), float: (int, float)}
NAMES = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null", Any: "*"}


def mismatches(value: Any, kind: Any, path: str = "value") -> list[str]:
    """Where a plain value does not fit a type made of TypedDicts, lists, tuples, dicts, unions and plain types."""
    origin, inner = get_origin(kind), get_args(kind)
    fields = get_type_hints(kind) if is_typeddict(kind) else {}
    if kind in NUMBERS:
        fits = isinstance(value, NUMBERS[kind]) and not isinstance(value, bool)
        return [] if fits else [f"{path}: {value!r} is not {kind.__name__}"]
    if kind is Any or (origin in UNIONS and any(not mismatches(value, one) for one in inner)):
        return []
    if origin in UNIONS or not isinstance(value, dict if fields or origin is Mapping else origin or kind):
        return [f"{path}: {value!r} is not {kind}"]
    parts: list[tuple[str, Any, Any]] = []  # path, value and type of each item
    problems = []
    if fields:
        parts = [(f"{path}.{key}", value[key], one) for key, one in fields.items() if key in value]
        if differing := set(value) ^ set(fields):
            problems = [f"{path}: keys differ: {sorted(differing)}"]
    elif origin is tuple:
        parts = [(f"{path}[{at}]", item, one) for at, (item, one) in enumerate(zip(value, inner, strict=False))]
        if len(value) != len(inner):
            problems = [f"{path}: {len(value)} items instead of {len(inner)}"]
    elif origin is not None:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        parts = [(f"{path}[{key!r}]", item, inner[-1]) for key, item in items]
    return [problem for at, item, one in parts for problem in mismatches(item, one, at)] + problems


def jsdoc_name(kind: Any) -> str:
    """A Python type as JSDoc writes it."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        return str(kind.__name__)
    if origin in UNIONS:
        return "|".join(dict.fromkeys(map(jsdoc_name, inner)))
    if origin is list:
        item = jsdoc_name(inner[0])
        return f"({item})[]" if get_origin(inner[0]) in UNIONS else f"{item}[]"
    if origin is tuple:
        return f"[{', '.join(map(jsdoc_name, inner))}]"
    if origin in (dict, Mapping):
        return f"Object<string, {jsdoc_name(inner[1])}>"
    return NAMES[kind]


def typed_dicts(kind: Any) -> dict[str, dict[str, str]]:
    """Every TypedDict that a type is made of, by name: its fields and their types as JSDoc writes them."""
    hints = get_type_hints(kind) if is_typeddict(kind) else {}
    found = {str(kind.__name__): {name: jsdoc_name(one) for name, one in hints.items()}} if hints else {}
    for one in hints.values() or get_args(kind):
        found |= typed_dicts(one)
    return found


def typedefs(script: str) -> dict[str, dict[str, str]]:
    """The JSDoc typedefs of a script, by name: their properties and types."""
    found = {}
    for comment in re.findall(r"/\*\*(.*?)\*/", script, re.DOTALL):
        name = re.search(r"@typedef \{Object\} (\w+)", comment)
        if name:
            found[name[1]] = {field: kind for kind, field in re.findall(r"@property \{(.+)\} (\w+)", comment)}
    return found
