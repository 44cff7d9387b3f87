"""`rankingmatch label`: label a folder of images in the browser."""

import shlex
import sys
import threading
import webbrowser
from pathlib import Path

import click

from rankingmatch.cli.shared import PATH
from rankingmatch.core.errors import ConfigError
from rankingmatch.core.names import printable
from rankingmatch.heads import HEAD_METHOD, LOGISTIC_REGRESSION, require_head_method

SECONDS_OF_A_THREAD = 0.0005  # then a request does not wait long for the thread that trains the model
method_option = click.option(
    "--method",
    metavar="NAME",
    default=HEAD_METHOD,
    help="Method that trains the model on the labels so far, with features of a pretrained network, or "
    f"{LOGISTIC_REGRESSION}. [{HEAD_METHOD}]",
)


@click.command(short_help="Label a FOLDER of images in the browser.")
@click.argument("folder", type=PATH)
@click.option("--classes", metavar="NAMES", default="", help="Initial class names, separated by commas.")
@click.option(
    "--labels-csv",
    "table",
    type=PATH,
    metavar="FILE",
    help="File that labels are saved to, for `train --labels-csv`. [FOLDER/labels.csv]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the server; 0 picks a free one. [8765, or a free one if it is taken]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on. With 0.0.0.0, anyone in your network who has the printed address can see and "
    "label the images, over an unencrypted connection. [127.0.0.1]",
)
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser. [on]")
@method_option
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), metavar="N", default=0, help="Seed of the image order. [0]")
def label(
    folder: Path, classes: str, table: Path | None, port: int | None, host: str, browser: bool, method: str, seed: int
) -> None:
    """Label a FOLDER of images in the browser, with a model that learns while you label.

    Every label is on the disk before the page shows the next image. FOLDER may also be a trained run: its folder is
    labeled, beginning with the images that its model is unsure about.
    """
    try:
        from rankingmatch.labeling.server import serve
    except ModuleNotFoundError as error:
        raise ConfigError(f"labeling needs {error.name}: pip install 'rankingmatch[label]'") from error
    from rankingmatch.data import under_way
    from rankingmatch.labeling.folder import open_session
    from rankingmatch.runs.display import loading_progress

    require_head_method(method)
    names = tuple(name.strip() for name in classes.split(",") if name.strip())
    with loading_progress() as progress, under_way(progress, f"looking through {printable(str(folder))}"):
        session = open_session(folder, table, names, seed)
    sys.setswitchinterval(SECONDS_OF_A_THREAD)

    def started(address: str) -> None:
        state = session.state()
        counts = ", ".join(f"{one['name']} {one['count']:,}" for one in state["classes"])
        labeled = f"{state['labeled']:,} labeled{counts and f' ({counts})'}"
        click.echo(f"{session.root}: {state['total']:,} images, {labeled}")
        click.echo(f"labels are saved to {session.journal.path}")
        if host not in ("127.0.0.1", "localhost", "::1"):
            click.echo(
                f"listening on {host}, unencrypted: everyone in the network who has this address can see and label the "
                "images; on another computer, replace the host by the address of this one"
            )
        click.echo(f"open {address}")
        click.echo("Ctrl-C stops the server; every label is already saved")
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    was_training = serve(session, host, port, method, started)
    state, path = session.state(), session.journal.path
    if not path.exists():
        click.echo("\nnothing was labeled")
        return
    click.echo(f"\n{state['labeled']:,} labels are in {path}; to train:")
    click.echo(shlex.join(["rankingmatch", "train", str(session.root), "--labels-csv", str(path)]))
    if was_training:
        click.echo(f"the training was {(state['training'] or {}).get('message', '')}")
