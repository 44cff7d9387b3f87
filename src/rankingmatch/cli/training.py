"""`rankingmatch train`: find what to train, train it, and show the result."""

import time
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from rankingmatch.cli.flags import SettingsCommand
from rankingmatch.cli.shared import PATH, json_option, trust_option
from rankingmatch.core.errors import DivergedError
from rankingmatch.core.names import printable


def _complete_data(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from rankingmatch.data import BENCHMARKS

    names = (CompletionItem(name) for name in BENCHMARKS if name.startswith(incomplete))
    return [CompletionItem(incomplete, type="dir"), *names]


def _complete_method(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from rankingmatch.methods import METHODS

    return [CompletionItem(name) for name in METHODS if name.startswith(incomplete)]


@click.command(cls=SettingsCommand, short_help="Train on a folder of images, or on a dataset by its name.")
@click.argument("data", required=False, shell_complete=_complete_data)
@click.option(
    "--method",
    metavar="NAME",
    shell_complete=_complete_method,
    help="A name from `rankingmatch methods`, or package.module:Class. [rankingmatch-bm; for photographs, softmatch]",
)
@click.option("--out", type=PATH, metavar="RUN", help="Run directory. [runs/DATA-LABELS-METHOD-SEED]")
@click.option("--resume", is_flag=True, help="Continue RUN from its last checkpoint; start it if it does not exist.")
@click.option(
    "--minutes", type=float, metavar="N", help="Time limit for the whole command; it sets the number of steps."
)
@click.option(
    "--bank-on",
    type=click.Choice(["here", "ray"]),
    default="here",
    help="Where to compute the frozen part of the network: in this process, or on a Ray cluster. [here]",
)
@click.option(
    "--ray-address", metavar="ADDRESS", help="With --bank-on ray: address of the cluster. [this machine only]"
)
@trust_option
@json_option
@click.option("--quiet", is_flag=True, help="Show no progress and no summary; with --json, only the result.")
@click.option("--report/--no-report", default=True, help="Write RUN/report.html at the end. [on]")
def train(
    data: str | None,
    method: str | None,
    out: Path | None,
    resume: bool,
    minutes: float | None,
    as_json: bool,
    quiet: bool,
    report: bool,
    bank_on: str,
    ray_address: str | None,
    **settings: Any,
) -> None:
    """Train on DATA, a name from `rankingmatch datasets`, a folder of images, or shards (tar or Parquet).

    The model, its history and a report are saved in a run directory. A dataset has its own defaults (see `rankingmatch
    datasets`), and those of a folder depend on its images; flags override them.
    """
    from rankingmatch.cli.printing import describe_plan, describe_result
    from rankingmatch.core.distributed import is_first, process_group
    from rankingmatch.data import under_way
    from rankingmatch.runs.display import choose_display, print_event
    from rankingmatch.runs.train import find_bank_computer, prepare, train_run

    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    given = {name: value for name, value in settings.items() if value is not None}
    computer = find_bank_computer(bank_on, ray_address)
    with process_group():
        display = choose_display(json_lines=as_json, quiet=quiet or not is_first())
        with under_way(display.progress, f"looking through {printable(data or str(out))}"):
            run, plan = prepare(data, method, out, given, resume=resume, minutes=minutes)
        if is_first() and not (as_json or quiet or run.is_finished()) and (text := describe_plan(plan)):
            click.echo(text, err=True)
        train_run(run, plan, display, report=report, bank_computer=computer, deadline=deadline)
        if not is_first():
            return
        result = run.result()
        assert result is not None
        if result.diverged_at is not None:
            raise DivergedError(result.diverged_at, str(result.diverged_part))
        if as_json:
            print_event("result", {"run": str(run.path), **result.to_json()})
        elif not quiet:
            click.echo(describe_result(result, run))
