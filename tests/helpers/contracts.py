"""Contracts between Python and JavaScript: checks values against types, and TypedDicts against JSDoc typedefs."""

import re
import types
from collections.abc import Iterator, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

UNIONS = (types.UnionType, Union)
NUMBERS = {int: (int,), float: (int, float)}
NAMES = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null", Any: "*"}


def mismatches(value: Any, kind: Any, path: str = "value") -> list[str]:
    """Where a plain value does not fit a type made of TypedDicts, lists, tuples, dicts, unions and plain types."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in UNIONS:
        return [] if any(not mismatches(value, one) for one in inner) else [f"{path}: {value!r} is not {kind}"]
    if kind is Any:
        return []
    if kind in NUMBERS:
        fits = isinstance(value, NUMBERS[kind]) and not isinstance(value, bool)
        return [] if fits else [f"{path}: {value!r} is not {kind.__name__}"]
    if not isinstance(value, dict if is_typeddict(kind) or origin is Mapping else origin or kind):
        return [f"{path}: {value!r} is not {kind}"]
    return [problem for at, item, type_ in _parts(value, kind, path) for problem in mismatches(item, type_, at)] + (
        _wrong_keys(value, kind, path)
    )


def _wrong_keys(value: Any, kind: Any, path: str) -> list[str]:
    if is_typeddict(kind) and set(value) != set(get_type_hints(kind)):
        return [f"{path}: keys differ: {sorted(set(value) ^ set(get_type_hints(kind)))}"]
    if get_origin(kind) is tuple and len(value) != len(get_args(kind)):
        return [f"{path}: {len(value)} items instead of {len(get_args(kind))}"]
    return []


def _parts(value: Any, kind: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Path, value and type of each item."""
    inner = get_args(kind)
    if is_typeddict(kind):
        yield from ((f"{path}.{key}", value[key], one) for key, one in get_type_hints(kind).items() if key in value)
    elif isinstance(value, dict):
        yield from ((f"{path}[{key!r}]", item, inner[1]) for key, item in value.items())
    elif isinstance(value, tuple):
        yield from ((f"{path}[{at}]", item, one) for at, (item, one) in enumerate(zip(value, inner, strict=False)))
    elif isinstance(value, list):
        yield from ((f"{path}[{at}]", item, inner[0]) for at, item in enumerate(value))


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
    if not is_typeddict(kind):
        found: dict[str, dict[str, str]] = {}
        for one in get_args(kind):
            found |= typed_dicts(one)
        return found
    hints = get_type_hints(kind)
    found = {str(kind.__name__): {name: jsdoc_name(one) for name, one in hints.items()}}
    for one in hints.values():
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
