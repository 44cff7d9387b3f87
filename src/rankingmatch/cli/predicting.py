"""`rankingmatch predict`: labels for images."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from rankingmatch.cli.shared import (
    PathType,
    best_option,
    device_option,
    json_option,
    on_option,
    ray_address_option,
    trust_option,
    was_closed,
)
from rankingmatch.core.errors import ConfigError


@click.command(short_help="Predict the labels of IMAGES.")
@click.argument("run", type=PathType())
@click.argument("images", nargs=-1, required=True)
@click.option("--out", type=PathType(), metavar="FILE", help="Output file. [standard output]")
@click.option("--probabilities", is_flag=True, help="Also write the probabilities of all classes.")
@click.option("--sort-into", type=PathType(), metavar="DIR", help="Copy images into class folders.")
@click.option("--link", is_flag=True, help="With --sort-into: link images instead of copying them.")
@click.option(
    "--null", is_flag=True, help="Names on standard input end with a null byte, as `find -print0` writes them."
)
@on_option("Where to compute: in this process, or on a Ray cluster whose machines see RUN and IMAGES.")
@ray_address_option
@best_option
@device_option
@trust_option
@json_option
@click.option("--quiet", is_flag=True, help="Show no progress and no summary.")
def predict(
    run: Path, images: tuple[str, ...], out: Path | None, null: bool, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Predict labels for IMAGES: a CSV table of file, label and confidence.

    IMAGES are files, folders, and shards (tar or Parquet); - reads names from standard input. Files that are not
    images are skipped and listed.
    """
    from rankingmatch.runs.directory import Run
    from rankingmatch.runs.display import loading_progress, prediction_progress
    from rankingmatch.runs.predict import describe_skipped, predict_into, read_names

    if out is None and was_closed("stdout"):
        raise ConfigError("standard output is closed; name a file with --out")
    predict_all = partial(predict_into, Run(run), images, out or sys.stdout.buffer, as_json=as_json, **options)
    if not quiet and not (out is None and sys.stdout.isatty()):  # a progress bar would mix with the rows
        predict_all = partial(predict_all, show=prediction_progress)
    with loading_progress(quiet=quiet) as progress:
        names = read_names(sys.stdin.buffer, b"\0" if null else b"\n")
        count, skipped = predict_all(standard_input=names, progress=progress)
    if out is not None and not as_json and not quiet:
        folders = "" if options["sort_into"] is None else f" and {options['sort_into']}"
        click.echo(f"{count:,} images → {out}{folders}", err=True)
    if skipped and not quiet:
        click.echo(f"{len(skipped):,} files were skipped: {describe_skipped(skipped)}", err=True)
