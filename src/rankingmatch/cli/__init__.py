"""The command line. It knows names, files and words; torch is imported only where a command computes."""

import json
import logging
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from rankingmatch import __version__
from rankingmatch.cli.grids import bench
from rankingmatch.cli.options import json_option
from rankingmatch.cli.predicting import predict
from rankingmatch.cli.training import train
from rankingmatch.core.errors import DivergedError, Interrupted, RankingMatchError, unknown_name
from rankingmatch.core.options import flag

INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose help needs no torch, and which suggests the nearest command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; `train` gets its flags from the declared options, and so is made on demand."""
        if cmd_name == "train":
            from rankingmatch.cli.flags import SettingsCommand

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


@click.command(short_help="Measure a trained RUN on its test images, or on others.")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("data", required=False)
@click.option("--best", is_flag=True, help="The weights best on validation instead of the last ones.")
@click.option("--device", metavar="STR", help="Where to compute; by default as the run did.")
@json_option
def evaluate(run: Path, data: str | None, best: bool, device: str | None, as_json: bool) -> None:
    """Measure a trained RUN on its test images, or on those of DATA, a name or a folder."""
    from rankingmatch.runs.directory import Run
    from rankingmatch.runs.evaluate import evaluate_run, evaluation_table

    report = evaluate_run(Run(run), data, best=best, device=device)
    if as_json:
        click.echo(json.dumps(report))
    else:
        evaluation_table(report)


@click.command()
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
    from rankingmatch.runs.export import export_run

    exported = export_run(run, file, values=values, logits=logits, best=best)
    click.echo(json.dumps(exported.to_json()) if as_json else exported.words())


@click.command(short_help="Show one RUN, or several side by side, in the browser.")
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
    from rankingmatch.runs.inspect import write_report

    page = write_report(runs, out, figures=figures, device=device, audited=audited)
    if as_json:
        click.echo(json.dumps({"report": str(page), "bytes": page.stat().st_size}))
    else:
        click.echo(f"report: {page}")


@click.command()
@json_option
def methods(as_json: bool) -> None:
    """List the methods, with the paper's comparison of them."""
    from rankingmatch.cli.listing import method_rows, print_rows

    print_rows(method_rows(), as_json)


@click.command()
@json_option
def datasets(as_json: bool) -> None:
    """List the datasets known by name, with their settings."""
    from rankingmatch.cli.listing import dataset_rows, print_rows

    print_rows(dataset_rows(), as_json)


for _command in (train, evaluate, predict, export, report, methods, datasets, bench):  # as `--help` lists them
    cli.add_command(_command)


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
        click.echo(_message(stop) or "stopped", err=True)
        raise SystemExit(INTERRUPTED) from None
    except (RankingMatchError, click.ClickException, OSError) as error:
        if debug:
            traceback.print_exc()
        click.echo(f"error: {' '.join(_message(error).splitlines())}", err=True)
        raise SystemExit(1 if isinstance(error, DivergedError) else 2) from None


def _message(error: Exception) -> str:
    """What to print of an error, with options spelled as flags."""
    if isinstance(error, RankingMatchError):
        return error.spelled(flag)
    return error.format_message() if isinstance(error, click.ClickException) else str(error)
