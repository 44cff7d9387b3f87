"""`rankingmatch predict`: images in, a table out."""

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import click

from rankingmatch.cli.options import json_option
from rankingmatch.core.errors import ConfigError


@click.command()
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
    from rankingmatch.runs import predict as words
    from rankingmatch.runs.directory import Run
    from rankingmatch.runs.display import watched

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
