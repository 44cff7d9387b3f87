"""Declared options as flags: their help, and numbers that nobody can compute with."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from rankingmatch.cli import cli
from rankingmatch.cli.flags import method_flags
from rankingmatch.cli.grids import bench_labeling
from rankingmatch.core.errors import ConfigError, DataError, DivergedError
from rankingmatch.core.options import HUGE, TINY, Option, check, options_of
from rankingmatch.methods import METHODS, hyperparameters_of
from rankingmatch.runs.config import SECTIONS, resolve
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import start, training_records

IMPOSSIBLE = (1e308, -1e308, 1e-320, -1e-320, math.nan, math.inf, -math.inf, 10**400)
SETTINGS = {option.name: ("supervised", option) for section in SECTIONS.values() for option in options_of(section)}
HYPERPARAMETERS = {
    (option.name, option.default): (method, option) for method in METHODS for option in hyperparameters_of(method)
}
NUMBERS = [
    (method, option)
    for method, option in (*SETTINGS.values(), *HYPERPARAMETERS.values())
    if option.type in (int, float) and method not in ("swwae", "cc-gan")  # they need networks of their own
]


@pytest.mark.parametrize(("method", "option"), NUMBERS, ids=lambda value: getattr(value, "name", value))
def test_a_number_that_nobody_can_compute_with_is_refused(method: str, option: Option) -> None:
    assert option.interval, "a number needs a range"
    for value in IMPOSSIBLE:
        with pytest.raises(ConfigError) as caught:
            check(option, value)
        assert caught.value.settings == (option.name,), value
    with pytest.raises(ConfigError) as caught:
        resolve("digits", method, {option.name: math.nan})
    assert option.name in caught.value.settings


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("value", [TINY, HUGE])
@pytest.mark.parametrize(
    ("method", "option"),
    [pair for pair in NUMBERS if pair[1].type is float],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_smallest_and_largest_number_train_or_are_refused(
    method: str, option: Option, value: float, tmp_path: Path
) -> None:
    quick: dict[str, Any] = {"labels": 40, "batch_size": 8, "mu": 1, "network": "small", "threads": 1}
    quick |= {option.name: value} if option.name == "epochs" else {"steps": 100, option.name: value}
    named: tuple[str, ...] = (option.name,)
    try:
        job = start(Run(tmp_path / "run"), resolve("digits", method, quick))
        list(itertools.islice(training_records(job), 2))
    except DivergedError:
        pass
    except (ConfigError, DataError) as error:
        named = error.settings
    assert option.name in named


COMMANDS = {**cli.commands, "bench labeling": bench_labeling}
NUMBER_FLAGS = [  # of commands, declared in click
    (name, parameter)
    for name, command in COMMANDS.items()
    for parameter in command.params
    if isinstance(parameter, click.Option) and isinstance(parameter.type, type(click.INT) | type(click.FLOAT))
]


@pytest.mark.parametrize(("name", "parameter"), NUMBER_FLAGS, ids=lambda value: str(getattr(value, "name", value)))
def test_an_impossible_number_of_a_command_is_one_line(
    name: str, parameter: click.Option, refused: Callable[..., str]
) -> None:
    required = ["digits" for one in COMMANDS[name].params if isinstance(one, click.Argument)]
    for value in (*IMPOSSIBLE, -1):
        assert parameter.opts[0] in refused(*name.split(), *required, f"{parameter.opts[0]}={value}")


def test_help_has_the_default_of_every_method() -> None:
    help_of = {flag.name: str(flag.help) for flag in method_flags(METHODS)}
    assert "default 1.0, 10.0 for pi-model, 50.0 for mean-teacher" in help_of["unlabeled_weight"]
    assert "default 0.95, 0.8 for uda, 0.7 for finessl; in (0, 1]; for pseudo-label, uda" in help_of["threshold"]
    assert help_of["epsilon"].endswith("[default 6.0; at least 0; for vat]")
