"""`rankingmatch predict`: labels for images."""

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from rankingmatch.cli.options import best_option, device_option, json_option
from rankingmatch.core.errors import ConfigError


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("images", nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Output file. [standard output]")
@click.option("--probabilities", is_flag=True, help="Also write the probabilities of all classes.")
@click.option("--sort-into", type=click.Path(path_type=Path), metavar="DIR", help="Copy images into class folders.")
@click.option("--link", is_flag=True, help="With --sort-into: link images instead of copying them.")
@click.option("--null", is_flag=True, help="Names on standard input end with a null byte, as of find … -print0.")
@best_option
@device_option
@json_option
@click.option("--quiet", is_flag=True, help="Show no progress and no summary.")
def predict(run: Path, images: tuple[str, ...], out: Path | None, sort_into: Path | None, **options: Any) -> None:
    """Predict labels for IMAGES: a CSV table of file, label and confidence.

    IMAGES are files and folders; - reads names from standard input. Files that are not images are skipped and listed.
    """
    from rankingmatch.runs import predict as prediction
    from rankingmatch.runs.directory import Run
    from rankingmatch.runs.display import prediction_progress

    if options["link"] and sort_into is None:
        raise ConfigError("--link needs --sort-into DIR")
    device = Run(run).config().device(options["device"])
    model, info = Run(run).load_model(device, best=options["best"])
    names = prediction.read_names(sys.stdin.buffer, b"\0" if options["null"] else b"\n")
    make_writer = prediction.json_writer if options["as_json"] else prediction.csv_writer
    with contextlib.ExitStack() as stack:
        writers = []
        if sort_into is not None:
            folders = prediction.folder_writer(sort_into, info.classes, link=options["link"])
            writers.append(stack.enter_context(folders))
        table = stack.enter_context(_open_text(out))
        writers.append(make_writer(table, info.classes, probabilities=options["probabilities"]))
        batches = prediction.predict_files(model, info, prediction.image_files(images, names), device)
        # On a terminal, a progress bar would mix with the rows.
        if not options["quiet"] and (out is not None or not sys.stdout.isatty()):
            batches = prediction_progress(batches, lambda: _count(images))
        count, skipped = prediction.write_predictions(batches, writers)
    if out is not None and not options["as_json"] and not options["quiet"]:
        click.echo(f"{count:,} images → {out}{'' if sort_into is None else f' and {sort_into}'}", err=True)
    if skipped and not options["quiet"]:
        click.echo(f"{len(skipped):,} files were skipped: {prediction.describe_skipped(skipped)}", err=True)


def _count(images: tuple[str, ...]) -> int | None:
    """The number of images; None if their names come from standard input."""
    from rankingmatch.runs.predict import image_files

    return None if "-" in images else sum(1 for _ in image_files(images))


@contextlib.contextmanager
def _open_text(path: Path | None) -> Iterator[IO[str]]:
    """A file that appears when it is complete, or standard output; names that are not text are written as bytes."""
    from rankingmatch.core.atomic import opened_atomically

    if path is not None and not path.parent.is_dir():
        raise ConfigError(f"--out {path}: there is no directory {path.parent}")
    if path is not None and path.is_dir():
        raise ConfigError(f"--out {path} is a directory; name a file, such as {path / 'predictions.csv'}")
    with contextlib.nullcontext(sys.stdout.buffer) if path is None else opened_atomically(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True)
        try:
            yield text
        finally:
            text.detach()
