"""One declaration gives default, type, help, flag and check."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from rankingmatch.core.errors import ConfigError
from rankingmatch.core.imports import import_object
from rankingmatch.core.options import check, option, options_of, validate
from rankingmatch.training.settings import TrainSettings


@dataclass
class Example:
    threshold: float = option(0.95, "τ", interval="(0, 1]")
    steps: int | None = option(None, "S", interval="[1, inf)")
    soft: bool = option(True, "f")
    rank_on: Literal["logits", "features"] = option("logits", "C")
    hidden: str = "not an option"


def test_options_are_read_off_the_fields() -> None:
    threshold, steps, soft, rank_on = options_of(Example)
    assert (threshold.flag, threshold.type, threshold.default, threshold.help) == ("--threshold", float, 0.95, "τ")
    assert (steps.type, steps.optional) == (int, True)
    assert soft.type is bool
    assert (rank_on.flag, rank_on.choices) == ("--rank-on", ("logits", "features"))


@pytest.mark.parametrize("values", [{}, {"threshold": 1}, {"threshold": 1.0}, {"steps": 1}, {"rank_on": "features"}])
def test_allowed_values_pass(values: dict[str, Any]) -> None:
    validate(Example(**values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"threshold": 0.0}, r"threshold is 0.0; it must be in \(0, 1\]"),
        ({"threshold": 1.01}, r"threshold is 1.01"),
        ({"threshold": float("nan")}, "threshold is nan"),
        ({"threshold": "high"}, "threshold is 'high'; it must be of type float"),
        ({"threshold": True}, "threshold is True; it must be of type float"),
        ({"threshold": None}, "threshold is None"),
        ({"steps": 0}, r"steps is 0; it must be in \[1, inf\)"),
        ({"steps": 1.5}, "steps is 1.5; it must be of type int"),
        ({"soft": 1}, "soft is 1; it must be of type bool"),
        ({"rank_on": "feature"}, "did you mean 'features'"),
    ],
)
def test_other_values_are_named_with_what_is_allowed(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(Example(**values))


@pytest.mark.parametrize("path", ["os:_exit", "os.path:join", "builtins:exec", "subprocess:run"])
def test_a_part_of_python_is_no_network(path: str) -> None:
    with pytest.raises(ConfigError, match="standard library"):
        import_object("network", path)


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**30])
def test_a_number_that_no_file_can_hold_is_refused(value: int) -> None:
    (option,) = (one for one in options_of(TrainSettings) if one.name == "seed")
    check(option, 2**63 - 1)
    with pytest.raises(ConfigError, match="below"):
        check(option, value)
