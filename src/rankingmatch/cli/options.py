"""Options that several commands have, and the type of paths."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rankingmatch.core.imports import trust_files

Command = TypeVar("Command", bound=Callable[..., Any])


class PathType(click.Path):
    """A path; an empty one is refused, because it would mean the current directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path as a Path."""
        return self.fail("it is empty; give a path", param, ctx) if value == "" else super().convert(value, param, ctx)


def _trust(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        trust_files()


trust_option = click.option(
    "--trust",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_trust,
    help="Import methods and networks that a run, model or recipe names as package.module:name, which runs their code.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON lines for programs.")
best_option = click.option(
    "--best", is_flag=True, help="Use the weights with the lowest validation error instead of the last ones."
)
device_option = click.option("--device", metavar="STR", help="Device to compute on; by default the one of the run.")
ray_address_option = click.option(
    "--ray-address", metavar="ADDRESS", help="With --on ray: address of the cluster. [this machine only]"
)


def on_option(help: str) -> Callable[[Command], Command]:
    """The option --on, with what it means for a command."""
    return click.option("--on", type=click.Choice(["here", "ray"]), default="here", help=f"{help} [here]")
