"""The command line. It knows names, files and words; torch is imported only where a command computes."""

import contextlib
import io
import json
import logging
import sys
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rankingmatch import __version__
from rankingmatch.errors import ConfigError, DivergedError, Interrupted, RankingMatchError, unknown_name

if TYPE_CHECKING:
    from rankingmatch.cluster import Resources
    from rankingmatch.config import Config
    from rankingmatch.job import Job
    from rankingmatch.run import Run

INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose help needs no torch, and which suggests the nearest command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; `train` gets its flags from the declared options, and so is made on demand."""
        if cmd_name == "train":
            from rankingmatch.flags import SettingsCommand

            plain = self.commands["train"]
            return SettingsCommand(
                "train",
                callback=plain.callback,
                params=plain.params,
                help=plain.help,
                short_help=plain.short_help,
            )
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their first sentences."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(80)) for name, command in self.commands.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does, but an unknown command is answered with the nearest name."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown_name("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="rankingmatch")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Train an image classifier from a few labeled and many unlabeled images."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _complete_data(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from rankingmatch.data import BENCHMARKS

    return [CompletionItem(begun, type="dir"), *(CompletionItem(name) for name in BENCHMARKS if name.startswith(begun))]


def _complete_method(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from rankingmatch.methods import METHODS

    return [CompletionItem(name) for name in METHODS if name.startswith(begun)]


json_option = click.option("--json", "as_json", is_flag=True, help="Print machine-readable lines.")


@cli.command()
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
    from rankingmatch.distributed import from_first, is_first, processes, restarted
    from rankingmatch.flags import given_settings

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
    from rankingmatch.display import display_for, follow, introduce
    from rankingmatch.job import begin

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
    from rankingmatch.estimate import estimate_run
    from rankingmatch.progress import duration

    seconds = None if job.state.step else estimate_run(job.config)
    if seconds is not None:
        click.echo(f"time: about {duration(seconds)} here, by a few steps on noise", err=True)


def _locate(
    data: str | None, method: str | None, out: Path | None, resume: bool, given: dict[str, Any]
) -> "tuple[Run, Config]":
    """The run to work in and its configuration; nothing is written yet."""
    from rankingmatch.config import resolve
    from rankingmatch.run import Run

    if resume and out is not None and (Run(out).exists() or data is None):
        return Run(out), _resumed(Run(out).config(), {"dataset": data, "method": method, **given})
    if data is None and resume:
        raise ConfigError("which run? give it with --out, such as: rankingmatch train --resume --out runs/mine")
    if data is None:
        raise ConfigError(
            "which data? give a folder of images or a name from `rankingmatch datasets`, such as: "
            "rankingmatch train digits"
        )
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
    from rankingmatch.data import whole_paths

    saved = config.to_json()
    dataset, given = whole_paths(given["dataset"] or config.dataset, given)
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
    from rankingmatch.inspection import write_report

    try:
        write_report([run.path])
    except (RankingMatchError, OSError) as error:
        click.echo(f"warning: no report was written ({error})", err=True)


def _print_result(run: "Run", as_json: bool, quiet: bool) -> None:
    from rankingmatch.display import result_lines

    result = run.result()
    assert result is not None
    if result.diverged_at is not None:
        raise DivergedError(result.diverged_at, str(result.diverged_part))
    if as_json:
        click.echo(json.dumps({"event": "result", "run": str(run.path), **asdict(result)}))
    elif not quiet:
        click.echo(result_lines(result, run))


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("data", required=False)
@click.option("--best", is_flag=True, help="The weights best on validation instead of the last ones.")
@click.option("--device", metavar="STR", help="Where to compute; by default as the run did.")
@json_option
def evaluate(run: Path, data: str | None, best: bool, device: str | None, as_json: bool) -> None:
    """Measure a trained RUN on its test images, or on those of DATA, a name or a folder."""
    from rankingmatch.evaluate import evaluate_run, evaluation_table
    from rankingmatch.run import Run

    report = evaluate_run(Run(run), data, best=best, device=device)
    if as_json:
        click.echo(json.dumps(report))
    else:
        evaluation_table(report)


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("images", nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Where the table goes. [standard output]")
@click.option("--probabilities", is_flag=True, help="The probabilities of all classes, too.")
@click.option("--sort-into", type=click.Path(path_type=Path), metavar="DIR", help="Copy images into class folders.")
@click.option("--link", is_flag=True, help="With --sort-into: link images instead of copying them.")
@click.option("--null", is_flag=True, help="Names on standard input end with a zero byte: find … -print0.")
@click.option("--best", is_flag=True, help="The weights best on validation instead of the last ones.")
@click.option("--device", metavar="STR", help="Where to compute; by default as the run did.")
@json_option
@click.option("--quiet", is_flag=True, help="Show no progress and no summary.")
def predict(
    run: Path,
    images: tuple[str, ...],
    out: Path | None,
    probabilities: bool,
    sort_into: Path | None,
    link: bool,
    null: bool,
    best: bool,
    device: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say what IMAGES show: a CSV table of file, label and confidence.

    IMAGES are files and folders; - reads names from standard input. Files that are no images are left out and listed.
    """
    from rankingmatch import predict as words
    from rankingmatch.display import watched
    from rankingmatch.run import Run

    if link and sort_into is None:
        raise ConfigError("--link goes with --sort-into DIR")
    chosen = Run(run)
    execution = chosen.config().execution
    place = replace(execution, device=device or execution.device).torch_device()
    model, card = chosen.load_model(place, best=best)
    files = words.image_files(images, words.names_in(sys.stdin.buffer, b"\0" if null else b"\n"))
    write = words.json_writer if as_json else words.csv_writer
    with contextlib.ExitStack() as stack:
        table = stack.enter_context(_text(out))
        writers = [write(table, card.classes, probabilities=probabilities)]
        if sort_into is not None:
            writers.append(stack.enter_context(words.sorting_into(sort_into, card.classes, link=link)))
        predicted = words.predictions(model, card, files, place)
        if not quiet and (out is not None or not sys.stdout.isatty()):  # a bar between the rows would spoil them
            predicted = watched(predicted, lambda: None if "-" in images else sum(1 for _ in words.image_files(images)))
        count, bad = words.write_predictions(predicted, writers)
    if out is not None and not as_json and not quiet:
        click.echo(f"{count:,} images → {out}{'' if sort_into is None else f' and {sort_into}'}", err=True)
    if bad and not quiet:
        click.echo(f"{len(bad):,} files are left out: {words.skipped_words(bad)}", err=True)


@contextlib.contextmanager
def _text(path: Path | None) -> Iterator[IO[str]]:
    """A file that appears when it is whole, or standard output; names that are no text pass as the bytes they are."""
    from rankingmatch.atomic import opened_atomically

    if path is not None and not path.parent.is_dir():
        raise ConfigError(f"--out {path}: there is no directory {path.parent}")
    with contextlib.nullcontext(sys.stdout.buffer) if path is None else opened_atomically(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True)
        try:
            yield text
        finally:
            text.detach()


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "values",
    type=click.Choice(["uint8", "float"]),
    default="uint8",
    help="What the file takes: uint8 in 0…255, or float32 in 0…1. [uint8]",
)
@click.option("--logits", is_flag=True, help="Give logits instead of probabilities.")
@click.option("--best", is_flag=True, help="The weights best on validation instead of the last ones.")
@json_option
def export(run: Path, file: Path, values: str, logits: bool, best: bool, as_json: bool) -> None:
    """Write the model of a trained RUN into an ONNX FILE.

    Normalisation and softmax are inside; it takes any number of images at a time. It is compared with PyTorch in ONNX
    Runtime before it is written. RUN may also be a model's safetensors file.
    """
    from rankingmatch.export import export_run

    exported = export_run(run, file, values=values, logits=logits, best=best)
    click.echo(json.dumps(exported.to_json()) if as_json else exported.words())


@cli.command()
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path), metavar="RUN…")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the page goes. [RUN/report.html; of several runs, report.html]",
)
@click.option(
    "--figures", type=click.Path(path_type=Path), metavar="DIR", help="Also write each figure as PNG and SVG."
)
@click.option(
    "--audit",
    "audited",
    type=click.IntRange(min=1),
    default=10_000,
    help="How many unlabeled images at most are looked at. [10000]",
)
@click.option("--device", metavar="STR", help="Where to compute; by default as the run did.")
@json_option
def report(
    runs: tuple[Path, ...], out: Path | None, figures: Path | None, audited: int, device: str | None, as_json: bool
) -> None:
    """Show one RUN, or several side by side, on a page that opens in any browser without a network."""
    from rankingmatch.inspection import write_report

    page = write_report(runs, out, figures=figures, device=device, audited=audited)
    if as_json:
        click.echo(json.dumps({"report": str(page), "bytes": page.stat().st_size}))
    else:
        click.echo(f"report: {page}")


@cli.command()
@json_option
def methods(as_json: bool) -> None:
    """List the methods, with the paper's comparison of them."""
    from rankingmatch.listing import method_rows, print_rows

    print_rows(method_rows(), as_json)


@cli.command()
@json_option
def datasets(as_json: bool) -> None:
    """List the datasets known by name, with their settings."""
    from rankingmatch.listing import dataset_rows, print_rows

    print_rows(dataset_rows(), as_json)


@cli.command()
@click.argument("recipes", nargs=-1)
@click.option("--scale", metavar="NAME", help="tiny, small or paper; by default the recipe's, which is the paper's.")
@click.option("--folds", type=click.IntRange(min=1), help="How many seeds, from 0 on; by default the recipe's.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="How many runs at a time. [1]")
@click.option(
    "--on",
    type=click.Choice(["here", "ray"]),
    default="here",
    help="Where: in processes here, or on a Ray cluster. [here]",
)
@click.option("--ray-address", metavar="ADDRESS", help="With --on ray: its cluster. [one of this machine alone]")
@click.option("--cpus-per-run", type=click.IntRange(min=1), help="With --on ray: CPUs that a run takes. [1]")
@click.option("--gpus-per-run", type=click.FloatRange(min=0), help="With --on ray: GPUs, or a part of one. [0]")
@click.option("--dry-run", is_flag=True, help="Only say what would be run, and how long it would take.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/bench"),
    help="Where the runs go. [runs/bench]",
)
@click.option("--markdown", type=click.Path(path_type=Path), help="Also write the tables into this file.")
@click.option("--csv", type=click.Path(path_type=Path), help="Also write the figures, fold by fold, into this file.")
@click.option("--latex", type=click.Path(path_type=Path), help="Also write the tables for LaTeX into this file.")
@click.option(
    "--figures", type=click.Path(path_type=Path), help="Also draw curves of time and memory into this folder."
)
@click.option("--data-dir", metavar="DIR", help="Where the datasets' files are, or are downloaded to.")
@click.option("--device", metavar="STR", help="cpu, cuda, cuda:1, mps …")
@click.option("--set", "given", multiple=True, metavar="OPTION=VALUE", help="Any option of `train`, for all runs.")
@json_option
@click.option("--quiet", is_flag=True, help="Show neither progress nor tables.")
def bench(
    recipes: tuple[str, ...],
    scale: str | None,
    folds: int | None,
    jobs: int,
    on: str,
    ray_address: str | None,
    cpus_per_run: int | None,
    gpus_per_run: float | None,
    dry_run: bool,
    out: Path,
    markdown: Path | None,
    csv: Path | None,
    latex: Path | None,
    figures: Path | None,
    data_dir: str | None,
    device: str | None,
    given: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Run grids of runs and print their tables.

    RECIPES are names of recipes that come along (table1, table5, digits …), or TOML files. Finished runs are kept, an
    interrupted one goes on. On a cluster, all machines must see --out; a run whose machine is lost goes on elsewhere.
    """
    from rankingmatch.bench import Files, run_recipes
    from rankingmatch.scale import SCALES

    if scale is not None and scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
    settings = {name: value for name, value in (("data_dir", data_dir), ("device", device)) if value is not None}
    settings |= dict(_setting(text) for text in given)
    run_recipes(
        recipes,
        folds=folds,
        scale=scale,
        jobs=jobs,
        out=out,
        settings=settings,
        files=Files(markdown, csv, latex, figures),
        dry_run=dry_run,
        as_json=as_json,
        quiet=quiet,
        command=" ".join(["rankingmatch", *sys.argv[1:]]),
        needs=_resources(on, jobs, ray_address, cpus_per_run, gpus_per_run),
    )


def _resources(on: str, jobs: int, address: str | None, cpus: int | None, gpus: float | None) -> "Resources | None":
    """What a run takes of a Ray cluster; None where there is none."""
    from rankingmatch.cluster import Resources

    if on == "ray" and jobs > 1:
        raise ConfigError("--jobs goes with --on here; a cluster has room for as many as --cpus-per-run allows")
    if on == "ray":
        return Resources(address, cpus or 1, gpus or 0.0)
    for flag, value in (("--ray-address", address), ("--cpus-per-run", cpus), ("--gpus-per-run", gpus)):
        if value is not None:
            raise ConfigError(f"{flag} goes with --on ray")
    return None


def _setting(text: str) -> tuple[str, Any]:
    """`steps=500` as a name and a value; what is no TOML value is a text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text}: write OPTION=VALUE, such as --set steps=500")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    return name.strip().removeprefix("--").replace("-", "_"), parsed


def main(arguments: list[str] | None = None) -> None:
    """The entry point: a user's mistake is one line on stderr and exit code 2, never a traceback."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        sys.path.append(str(Path.cwd()))  # for methods and networks by import path, after everything installed
        cli.main(args=[word for word in given if word != "--debug"], prog_name="rankingmatch", standalone_mode=False)
    except click.exceptions.Exit as leave:
        raise SystemExit(leave.exit_code) from None
    except (Interrupted, click.Abort) as stop:
        click.echo(str(stop) or "stopped", err=True)
        raise SystemExit(INTERRUPTED) from None
    except (RankingMatchError, DivergedError, click.ClickException, OSError) as error:
        if debug:
            traceback.print_exc()
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"error: {' '.join(message.splitlines())}", err=True)
        raise SystemExit(1 if isinstance(error, DivergedError) else 2) from None
