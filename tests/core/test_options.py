"""One declaration gives default, type, help, flag and check."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from rankingmatch.core.errors import ConfigError
from rankingmatch.core.imports import import_object
from rankingmatch.core.options import option, options_of, validate


@dataclass
class Example:
    threshold: float = option(0.95, "τ", interval="(0, 1]")
    weight: float = option(0.0, "w", interval="[0, inf)")
    steps: int | None = option(None, "S", interval="[1, inf)")
    soft: bool = option(True, "f")
    rank_on: Literal["logits", "features"] = option("logits", "C")
    folder: str | None = option(None, "d", path=True)
    hidden: str = "not an option"


def test_options_are_read_off_the_fields() -> None:
    threshold, _, steps, soft, rank_on, _ = options_of(Example)
    assert (threshold.flag, threshold.type, threshold.default, threshold.help) == ("--threshold", float, 0.95, "τ")
    assert (steps.type, steps.optional) == (int, True)
    assert soft.type is bool
    assert (rank_on.flag, rank_on.choices) == ("--rank-on", ("logits", "features"))


@pytest.mark.parametrize(
    "values",
    [{}, {"threshold": 1}, {"threshold": 1.0}, {"steps": 1}, {"steps": 2**63 - 1}, {"rank_on": "features"}],
)
def test_allowed_values_pass(values: dict[str, Any]) -> None:
    validate(Example(**values))


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("threshold", 0.0, r"\(0, 1\]"),
        ("threshold", 1.01, r"\(0, 1\]"),
        ("threshold", float("nan"), r"\(0, 1\]"),
        ("threshold", "high", "float"),
        ("threshold", True, "float"),
        ("threshold", None, "float"),
        ("weight", 1e308, r"1e\+30"),
        ("weight", 1e-320, "1e-30"),
        ("weight", 10**400, r"1e\+30"),
        ("steps", 0, r"\[1, inf\)"),
        ("steps", 1.5, "int"),
        ("steps", 2**63, r"2\^63"),
        ("soft", 1, "bool"),
        ("rank_on", "feature", "'features'"),
        ("folder", "", "empty"),
    ],
)
def test_other_values_are_named_with_what_is_allowed(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError, match=allowed) as caught:
        validate(Example(**{name: value}))
    assert caught.value.settings == (name,)
    assert str(value)[:20] in str(caught.value)


@pytest.mark.parametrize("path", ["os:_exit", "os.path:join", "builtins:exec", "subprocess:run"])
def test_a_part_of_python_is_no_network(path: str) -> None:
    with pytest.raises(ConfigError, match="standard library"):
        import_object("network", path)
