"""The command line. It imports torch only where a command computes."""

import json
import logging
import shlex
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from rankingmatch import __version__
from rankingmatch.cli.grids import bench
from rankingmatch.cli.options import best_option, device_option, json_option
from rankingmatch.cli.predicting import predict
from rankingmatch.cli.training import train
from rankingmatch.core.errors import DivergedError, Interrupted, RankingMatchError, unknown_name
from rankingmatch.core.options import flag

INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose help does not import torch, and which suggests the nearest command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; the flags of `train` are the declared options, collected on demand."""
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
        """Write the commands with their summaries."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(80)) for name, command in self.commands.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Resolve a command as click does, but suggest the nearest name for an unknown one."""
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


@click.command(short_help="Evaluate a trained RUN on its test images, or on others.")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("data", required=False)
@best_option
@device_option
@json_option
def evaluate(run: Path, data: str | None, best: bool, device: str | None, as_json: bool) -> None:
    """Evaluate a trained RUN on its test images, or on those of DATA, a dataset or a folder."""
    from rankingmatch.cli.describe import print_evaluation
    from rankingmatch.runs.directory import Run
    from rankingmatch.runs.evaluate import evaluate_run

    report = evaluate_run(Run(run), data, best=best, device=device)
    if as_json:
        click.echo(json.dumps(report))
    else:
        print_evaluation(report)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "values",
    type=click.Choice(["uint8", "float"]),
    default="uint8",
    help="Input of the model: uint8 in 0…255, or float32 in 0…1. [uint8]",
)
@click.option("--logits", is_flag=True, help="Return logits instead of probabilities.")
@best_option
@json_option
def export(run: Path, file: Path, values: str, logits: bool, best: bool, as_json: bool) -> None:
    """Export the model of a trained RUN to an ONNX FILE.

    It includes normalization and softmax, and takes batches of any size. Before it is written, its outputs in ONNX
    Runtime are compared with PyTorch. RUN may also be the safetensors file of a model.
    """
    from rankingmatch.runs.export import export_run

    exported = export_run(run, file, values=values, logits=logits, best=best)
    click.echo(json.dumps(exported.to_json()) if as_json else str(exported))


@click.command(short_help="Write a report page of one RUN, or of several side by side.")
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path), metavar="RUN…")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Output file. [RUN/report.html; for several runs, report.html]",
)
@click.option(
    "--figures", type=click.Path(path_type=Path), metavar="DIR", help="Also write each figure as PNG and SVG."
)
@click.option(
    "--audit",
    "audited",
    type=click.IntRange(min=1),
    default=10_000,
    help="Number of unlabeled images to look at, at most. [10000]",
)
@device_option
@json_option
def report(
    runs: tuple[Path, ...], out: Path | None, figures: Path | None, audited: int, device: str | None, as_json: bool
) -> None:
    """Write a report page of one RUN, or of several side by side, that opens in any browser, also offline."""
    from rankingmatch.runs.inspect import write_report

    page = write_report(runs, out, figures=figures, device=device, audited=audited)
    if as_json:
        click.echo(json.dumps({"report": str(page), "bytes": page.stat().st_size}))
    else:
        click.echo(f"report: {page}")


@click.command()
@json_option
def methods(as_json: bool) -> None:
    """List the methods, with the paper's comparison."""
    from rankingmatch.cli.listing import method_rows, print_rows

    print_rows(method_rows(), as_json)


@click.command()
@json_option
def datasets(as_json: bool) -> None:
    """List the datasets known by name, with their settings."""
    from rankingmatch.cli.listing import dataset_rows, print_rows

    print_rows(dataset_rows(), as_json)


for _command in (train, evaluate, predict, export, report, methods, datasets, bench):  # in the order of `--help`
    cli.add_command(_command)


def main(arguments: list[str] | None = None) -> None:
    """The entry point: a user's mistake gives one line on stderr and exit code 2, not a traceback."""
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
    """The text of an error, with options spelled as flags and the command that resumes the run."""
    if not isinstance(error, RankingMatchError):
        return error.format_message() if isinstance(error, click.ClickException) else str(error)
    text = error.spelled(lambda name: "DATA" if name == "data" else flag(name))
    path = getattr(error, "resumable", None)
    return text if path is None else f"{text}; to resume: rankingmatch train --resume --out {shlex.quote(str(path))}"
