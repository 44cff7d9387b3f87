"""`rankingmatch train`: what is asked for is found or refused, then carried out, shown and summed up."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rankingmatch.cli.options import json_option
from rankingmatch.core.errors import ConfigError, DivergedError, RankingMatchError

if TYPE_CHECKING:
    from rankingmatch.runs.config import Config
    from rankingmatch.runs.directory import Run
    from rankingmatch.runs.job import Job

LONG = 1200  # seconds: whoever meets this for the first time should not have to wait for that
FIRST_LOOK = 16  # pixels, enough to see whether it works at all


def _complete_data(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from rankingmatch.data import BENCHMARKS

    return [CompletionItem(begun, type="dir"), *(CompletionItem(name) for name in BENCHMARKS if name.startswith(begun))]


def _complete_method(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from rankingmatch.methods import METHODS

    return [CompletionItem(name) for name in METHODS if name.startswith(begun)]


@click.command(short_help="Train on a folder of images, or on a dataset by its name.")
@click.argument("data", required=False, shell_complete=_complete_data)
@click.option(
    "--method",
    metavar="NAME",
    shell_complete=_complete_method,
    help="See `rankingmatch methods`; or package.module:Class. [rankingmatch-bm]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Run directory. [runs/DATA-LABELS-METHOD-SEED]",
)
@click.option("--resume", is_flag=True, help="Go on where RUN stopped; start it if it is not there.")
@json_option
@click.option("--quiet", is_flag=True, help="Show no progress and no summary; with --json, the result only.")
@click.option("--report/--no-report", "reporting", default=True, help="Write RUN/report.html at the end. [on]")
def train(
    data: str | None,
    method: str | None,
    out: Path | None,
    resume: bool,
    reporting: bool,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Train on DATA, a name from `rankingmatch datasets` or a folder of images, into a run directory.

    A dataset brings defaults of its own, which `rankingmatch datasets` shows, and a folder's follow from what is in it;
    flags come before them.
    """
    from rankingmatch.cli.flags import given_settings
    from rankingmatch.core.distributed import from_first, is_first, processes, restarted

    with processes():
        given, resume = given_settings(settings), resume or restarted()
        run, config = from_first(lambda: _locate(data, method, out, resume, given))
        finished = from_first(lambda: run.result() is not None)
        if is_first():
            if not finished:
                _carry_out(run, config, reporting, as_json, quiet)
            _print_result(run, as_json, quiet)
        elif not finished:
            _carry_out(run, config, reporting=False, as_json=False, quiet=True)


def _carry_out(run: "Run", config: "Config", reporting: bool, as_json: bool, quiet: bool) -> None:
    from rankingmatch.runs.display import display_for, follow, introduce
    from rankingmatch.runs.job import begin

    if not (as_json or quiet):
        introduce(config)
    display = display_for(json_lines=as_json, quiet=quiet)
    try:
        job = begin(run, config)
        if not (as_json or quiet):
            _announce_time(job)
        follow(job, display, f"rankingmatch train --resume --out {run.path}")
    finally:
        if reporting and run.result() is not None:
            _report_on(run)


def _announce_time(job: "Job") -> None:
    """Say beforehand how long a new run will take."""
    from rankingmatch.runs.display import duration
    from rankingmatch.runs.estimate import estimate_run

    seconds = None if job.state.step else estimate_run(job.config)
    if seconds is not None:
        large = min(job.split.images.shape[1:3]) > FIRST_LOOK
        hint = (
            f"; for a first look, --image-size {FIRST_LOOK} is many times faster, if less exact"
            if large and seconds > LONG
            else ""
        )
        click.echo(f"time: about {duration(seconds)} here, by a few trial steps{hint}", err=True)


def _locate(
    data: str | None, method: str | None, out: Path | None, resume: bool, given: dict[str, Any]
) -> "tuple[Run, Config]":
    """The run to work in and its configuration; nothing is written yet."""
    from rankingmatch.runs.config import resolve
    from rankingmatch.runs.directory import Run

    if resume and out is not None and (Run(out).exists() or data is None):
        return Run(out), _resumed(Run(out).config(), {"dataset": data, "method": method, **given})
    if data is None and resume:
        raise ConfigError("which run? give it with --out, such as: rankingmatch train --resume --out runs/mine")
    if data is None:
        raise ConfigError(
            "which data? give a folder of images or a name from `rankingmatch datasets`, such as: "
            "rankingmatch train digits"
        )
    if given.get("split") is not None and (twice := [name for name in ("labels", "validation") if name in given]):
        raise ConfigError(f"--split says which images are labeled and which validate; leave --{twice[0]} out")
    config = resolve(data, method or "rankingmatch-bm", given)
    if out is None:
        labels, name = config.data.labels or "all", Path(data).resolve().name
        out = Path("runs") / f"{name}-{labels}-{config.method.replace(':', '.')}-{config.training.seed}"
        if resume and Run(out).exists():
            return _locate(data, method, out, resume, given)
    Run(out).refuse_if_taken()
    return Run(out), config


def _resumed(config: "Config", given: dict[str, Any]) -> "Config":
    """The configuration of a run that goes on: only where and how it is carried out may be given anew."""
    from rankingmatch.data import absolute_paths
    from rankingmatch.runs.config import section_options

    saved = config.to_json()
    dataset, given = absolute_paths(given["dataset"] or config.dataset, given, section_options())
    given["dataset"] = dataset
    execution = {name: given.pop(name) for name in saved["execution"] if name in given}
    flat = {key: value for part in saved.values() if isinstance(part, dict) for key, value in part.items()}
    flat |= {"dataset": saved["dataset"], "method": saved["method"]}
    for name, value in given.items():
        if value is not None and flat.get(name) != value:
            raise ConfigError(
                f"--resume keeps the run's settings: {name} is {flat.get(name)}, not {value}; leave the flag out, "
                "or start another run with --out"
            )
    config = replace(config, execution=replace(config.execution, **execution))
    config.check()
    return config


def _report_on(run: "Run") -> None:
    """Write the page of a run that has just ended; that it cannot be written must not spoil the run."""
    from rankingmatch.runs.inspect import write_report

    try:
        write_report([run.path])
    except (RankingMatchError, OSError) as error:
        click.echo(f"warning: no report was written ({error})", err=True)


def _print_result(run: "Run", as_json: bool, quiet: bool) -> None:
    from rankingmatch.runs.display import result_lines

    result = run.result()
    assert result is not None
    if result.diverged_at is not None:
        raise DivergedError(result.diverged_at, str(result.diverged_part))
    if as_json:
        click.echo(json.dumps({"event": "result", "run": str(run.path), **asdict(result)}))
    elif not quiet:
        click.echo(result_lines(result, run))
