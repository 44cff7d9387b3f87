"""`rankingmatch train`: find what to train, train it, and show the result."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rankingmatch.cli.flags import SettingsCommand
from rankingmatch.cli.shared import PathType, json_option, trust_option
from rankingmatch.core.errors import ConfigError, DivergedError
from rankingmatch.core.names import printable

if TYPE_CHECKING:
    from rankingmatch.data import Progress
    from rankingmatch.runs.directory import Run
    from rankingmatch.runs.job import Job
    from rankingmatch.training.banks import Computer

LONG = 1200  # seconds: too long for somebody who tries it for the first time
PREVIEW_SIDE = 16  # pixels: enough to see whether it works at all


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
@click.option(
    "--out",
    type=PathType(),
    metavar="RUN",
    help="Run directory. [runs/DATA-LABELS-METHOD-SEED]",
)
@click.option("--resume", is_flag=True, help="Continue RUN from its last checkpoint; start it if it does not exist.")
@click.option(
    "--minutes",
    type=float,
    metavar="N",
    help="Time for the whole command: train for as many steps as fit into it.",
)
@click.option(
    "--bank-on",
    type=click.Choice(["here", "ray"]),
    default="here",
    help="Where to compute the outputs of a frozen part for all images: in this process, or on a Ray cluster. [here]",
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
    from rankingmatch.core.distributed import from_first_process, is_first, process_group
    from rankingmatch.data import under_way
    from rankingmatch.runs.progress import loading_progress
    from rankingmatch.runs.report import write_missing_report
    from rankingmatch.runs.train import Request, find_bank_computer, prepare

    if data is None and not (resume and out):
        example = "train --resume --out runs/mine" if resume else "train digits"
        missing = "--out with the run directory" if resume else "a dataset's name or a folder of images"
        raise ConfigError(f"give {missing}, for example: rankingmatch {example}")
    given = {name: value for name, value in settings.items() if value is not None}
    computer = find_bank_computer(bank_on, ray_address)
    with process_group(), loading_progress(json_lines=as_json, quiet=quiet or not is_first()) as progress:
        with under_way(progress, f"looking through {printable(data or str(out))}"):
            run, plan = prepare(Request(data, method, out, resume, minutes, given))
        if from_first_process(lambda: not run.is_finished()):
            _train(run, plan, report, as_json, quiet or not is_first(), progress, computer)
        elif report and is_first():
            write_missing_report(run, progress)
        if is_first():
            _print_result(run, as_json, quiet)


def _train(
    run: "Run", plan: Any, report: bool, as_json: bool, quiet: bool, progress: "Progress", computer: "Computer"
) -> None:
    from rankingmatch.cli.printing import describe_plan
    from rankingmatch.runs.display import choose_display
    from rankingmatch.runs.train import train_run

    silent = as_json or quiet
    if not silent and (text := describe_plan(plan)):
        click.echo(text, err=True)
    train_run(
        run,
        plan,
        choose_display(json_lines=as_json, quiet=quiet),
        report=report,
        progress=progress,
        before=(lambda job: None) if silent else (lambda job: _print_estimate(job, progress)),
        bank_computer=computer,
    )


def _print_estimate(job: "Job", progress: "Progress") -> None:
    """Print how long a new run will take."""
    from rankingmatch.data import under_way
    from rankingmatch.runs.display import duration
    from rankingmatch.runs.estimate import estimate_run

    with under_way(progress, "estimating the time with a few trial steps"):
        seconds = None if job.state.step else estimate_run(job.plan)
    if seconds is not None:
        large = min(job.split.images.shape[1:3]) > PREVIEW_SIDE
        hint = f"; for a quick, less accurate preview, use --image-size {PREVIEW_SIDE}"
        click.echo(
            f"estimated time: {duration(seconds)}, from a few trial steps{hint if large and seconds > LONG else ''}",
            err=True,
        )


def _print_result(run: "Run", as_json: bool, quiet: bool) -> None:
    from rankingmatch.cli.printing import describe_result
    from rankingmatch.runs.events import print_event

    result = run.result()
    assert result is not None
    if result.diverged_at is not None:
        raise DivergedError(result.diverged_at, str(result.diverged_part))
    if as_json:
        print_event("result", {"run": str(run.path), **result.to_json()})
    elif not quiet:
        click.echo(describe_result(result, run))
