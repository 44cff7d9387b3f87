"""What the commands share: options, the type of paths, and standard streams that may be closed or full."""

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from rankingmatch.core.imports import trust_files

Command = TypeVar("Command", bound=Callable[..., Any])
_closed: set[str] = set()


class PathType(click.Path):
    """A path; an empty one is refused, because it would mean the current directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path as a Path."""
        return self.fail("it is empty; give a path", param, ctx) if value == "" else super().convert(value, param, ctx)


PATH = PathType()


class NumberType(click.FloatRange):
    """A number in a range; unlike click's, it refuses NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The value as a float."""
        number = float(super().convert(value, param, ctx))
        return self.fail("it is not a number", param, ctx) if math.isnan(number) else number


def _trust(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        trust_files()


trust_option = click.option(
    "--trust",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_trust,
    help="Import the methods and networks that a run, model or recipe names as package.module:name. This runs "
    "their code.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
best_option = click.option(
    "--best", is_flag=True, help="Use the weights with the lowest validation error instead of the last ones."
)
device_option = click.option("--device", metavar="STR", help="Device to compute on; by default, the run's.")
ray_address_option = click.option(
    "--ray-address", metavar="ADDRESS", help="With --on ray: address of the cluster. [this machine only]"
)


def on_option(help: str) -> Callable[[Command], Command]:
    """The option --on, with what it means for a command."""
    return click.option("--on", type=click.Choice(["here", "ray"]), default="here", help=f"{help} [here]")


# --- standard streams ----------------------------------------------------------------------------------------


def prepare_streams() -> None:
    """Put /dev/null in the place of closed streams, and let the others show any character.

    Otherwise the next file that is opened would get the number of the closed stream, and with it what other libraries
    write to standard error.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # it is closed
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            _closed.add(name)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))
        elif name == "stdout" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # as Python does for standard error


def was_closed(name: str) -> bool:
    """Whether a stream was closed when the command started."""
    return name in _closed


def settle_output() -> None:
    """Write what is left for standard output; if it takes no more, discard it, or Python would try again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
