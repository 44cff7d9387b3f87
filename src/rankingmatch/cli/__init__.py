"""The command line. It imports torch only where a command computes."""

import json
import logging
import os
import shlex
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import click

from rankingmatch import __version__
from rankingmatch.cli.grids import bench
from rankingmatch.cli.labeling import label
from rankingmatch.cli.shared import json_option, prepare_streams, settle_output
from rankingmatch.cli.trained import evaluate, export, predict, report
from rankingmatch.cli.training import train
from rankingmatch.core.errors import DivergedError, Interrupted, RankingMatchError, is_out_of_memory, unknown_name
from rankingmatch.core.names import printable
from rankingmatch.core.options import flag

INTERRUPTED = 130
BROKEN_PIPE = 1  # as click does it


class Commands(click.Group):
    """Commands in the order of their declaration; an unknown one is answered with the nearest names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, for the help."""
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command that the arguments name."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown_name("command", args[0], self.commands)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
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


@click.command()
@json_option
def methods(as_json: bool) -> None:
    """List the methods, with the paper's comparison."""
    from rankingmatch.cli.printing import method_rows, print_rows

    print_rows(method_rows(), as_json)


@click.command()
@json_option
def datasets(as_json: bool) -> None:
    """List the datasets known by name, with their settings."""
    from rankingmatch.cli.printing import dataset_rows, print_rows

    print_rows(dataset_rows(), as_json)


@click.command(short_help="Show what this machine has, how fast it is, and what to install.")
@click.option("--device", metavar="STR", default="auto", help="Device to measure. [auto]")
@json_option
def doctor(device: str, as_json: bool) -> None:
    """Show the devices, threads, memory, versions and extras of this machine, how fast it trains, and what to install.

    Takes about ten seconds. Include its output when you report a problem.
    """
    from rankingmatch.cli.printing import doctor_page
    from rankingmatch.runs.display import loading_progress
    from rankingmatch.runs.doctor import examine

    with loading_progress(quiet=as_json) as progress:
        found = examine(device, progress)
    click.echo(json.dumps(found, ensure_ascii=False) if as_json else "\n".join(doctor_page(found)))


# In the order of `--help`.
for _command in (label, train, evaluate, predict, export, report, methods, datasets, bench, doctor):
    cli.add_command(_command)


def main(arguments: list[str] | None = None) -> None:
    """The entry point: a user's mistake gives one line on stderr and exit code 2, not a traceback."""
    prepare_streams()
    _prepare_log()
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        cli.main(args=[word for word in given if word != "--debug"], prog_name="rankingmatch", standalone_mode=False)
        sys.stdout.flush()  # here, where a full disk is an error like any other
    except click.exceptions.Exit as leave:
        raise SystemExit(leave.exit_code) from None
    except (Interrupted, click.Abort) as stop:
        click.echo(_message(stop) or "stopped", err=True)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        settle_output()
        raise SystemExit(BROKEN_PIPE) from None
    except (RankingMatchError, click.ClickException, OSError, MemoryError, RuntimeError, ImportError) as error:
        if isinstance(error, RuntimeError | ImportError) and not is_out_of_memory(error):
            raise
        if debug:
            traceback.print_exc()
        settle_output()
        text = " ".join(_message(error).splitlines())
        try:
            os.getcwd()  # noqa: PTH109
        except OSError:  # relative paths lead nowhere
            text += " (the current directory no longer exists or cannot be read: change to another one)"
        click.echo(f"error: {printable(text)}", err=True)
        raise SystemExit(1 if isinstance(error, DivergedError) else 2) from None


def _prepare_log() -> None:
    """Show warnings on standard error, each on one line, whatever the names in it contain."""

    class OneLine(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of Python's
            return printable(super().formatMessage(record))

    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(levelname)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # about damaged images, which are skipped and listed


def _message(error: Exception) -> str:
    """The text of an error, with options spelled as flags and the command that resumes the run."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        files = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return f"{' → '.join(files)}: {reason}" if files else reason
    if is_out_of_memory(error):
        return "the memory is exhausted; lower --batch-size or --image-size, or close other programs"
    if not isinstance(error, RankingMatchError):
        return error.format_message() if isinstance(error, click.ClickException) else str(error)
    text = error.spelled(lambda name: "DATA" if name == "data" else flag(name))
    path = getattr(error, "resumable", None)
    return text if path is None else f"{text}; to resume: {_resume_command(path)}"


def _resume_command(path: Path) -> str:
    """The command that resumes a run; it trusts import paths that the user has given for this run."""
    from rankingmatch.runs.directory import Run

    try:
        names_code = bool(Run(path).config().import_paths())
    except RankingMatchError:  # not a run yet, or one that is not trusted
        names_code = False
    return shlex.join(["rankingmatch", "train", "--resume", "--out", str(path), *(["--trust"] if names_code else [])])
