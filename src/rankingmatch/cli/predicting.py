"""`rankingmatch predict`: labels for images."""

import contextlib
import io
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from rankingmatch.cli.shared import (
    PathType,
    best_option,
    device_option,
    json_option,
    on_option,
    ray_address_option,
    trust_option,
)
from rankingmatch.core.errors import ConfigError
from rankingmatch.core.names import printable

if TYPE_CHECKING:
    from rankingmatch.data import ImageFile
    from rankingmatch.runs.model import ModelInfo
    from rankingmatch.runs.predict import FilePredictions


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
def predict(run: Path, images: tuple[str, ...], out: Path | None, sort_into: Path | None, **options: Any) -> None:
    """Predict labels for IMAGES: a CSV table of file, label and confidence.

    IMAGES are files, folders, and shards (tar or Parquet); - reads names from standard input. Files that are not
    images are skipped and listed.
    """
    from rankingmatch.data import under_way
    from rankingmatch.data.decode import image_suffixes
    from rankingmatch.runs import predict as prediction
    from rankingmatch.runs.directory import Run
    from rankingmatch.runs.display import loading_progress, prediction_progress

    if options["link"] and sort_into is None:
        raise ConfigError("--link needs --sort-into DIR")
    if out is not None:
        Run(run).require_other_file(out)
        if out.suffix.lower() in image_suffixes() - {""}:
            raise ConfigError(f"--out {out} has the name of an image, which would be lost; name a table, such as t.csv")
    if options["ray_address"] is not None and options["on"] != "ray":
        raise ConfigError("--ray-address needs --on ray")
    device = Run(run).config().device(options["device"])
    model, info = Run(run).load_model(device, best=options["best"])
    names = prediction.read_names(sys.stdin.buffer, b"\0" if options["null"] else b"\n")
    on_terminal = out is None and sys.stdout.isatty()
    write_csv = partial(prediction.csv_writer, show=printable if on_terminal else str)
    make_writer = prediction.json_writer if options["as_json"] else write_csv
    with contextlib.ExitStack() as stack:
        writers = []
        if sort_into is not None:
            folders = prediction.folder_writer(sort_into, info.classes, link=options["link"])
            writers.append(stack.enter_context(folders))
        table = stack.enter_context(_open_text(out))
        writers.append(make_writer(table, info.classes, probabilities=options["probabilities"]))
        with loading_progress(quiet=options["quiet"]) as progress, under_way(progress, "counting the images"):
            total = _count(images)
        files = prediction.image_files(images, names)
        if options["on"] == "ray":
            batches = _on_ray(run, info, files, total or 0, options)
        else:
            batches = prediction.predict_files(model, info, files, device, total or 0)
        # On a terminal, a progress bar would mix with the rows.
        if not options["quiet"] and not on_terminal:
            batches = prediction_progress(batches, total)
        count, skipped = prediction.write_predictions(batches, writers)
    if out is not None and not options["as_json"] and not options["quiet"]:
        click.echo(f"{count:,} images → {out}{'' if sort_into is None else f' and {sort_into}'}", err=True)
    if skipped and not options["quiet"]:
        click.echo(f"{len(skipped):,} files were skipped: {prediction.describe_skipped(skipped)}", err=True)


def _on_ray(
    run: Path, info: "ModelInfo", files: "Iterator[ImageFile]", count: int, options: dict[str, Any]
) -> "Iterator[FilePredictions]":
    from rankingmatch.core.imports import files_are_trusted
    from rankingmatch.runs.predict_on_ray import predict_on_ray

    return predict_on_ray(
        run,
        info,
        files,
        best=options["best"],
        device=options["device"],
        count=count,
        address=options["ray_address"],
        trust=files_are_trusted(),
    )


def _count(images: tuple[str, ...]) -> int | None:
    """The number of images; None if their names come from standard input."""
    from rankingmatch.runs.predict import image_files

    return None if "-" in images else sum(1 for _ in image_files(images))


@contextlib.contextmanager
def _open_text(path: Path | None) -> Iterator[IO[str]]:
    """A file that appears when it is complete, or standard output; names that are not text are written as bytes."""
    from rankingmatch.cli.shared import was_closed
    from rankingmatch.core.atomic import opened_output

    if path is None and was_closed("stdout"):
        raise ConfigError("standard output is closed; name a file with --out")
    if path is not None and not path.parent.is_dir():
        raise ConfigError(f"--out {path}: there is no directory {path.parent}")
    if path is not None and path.is_dir():
        raise ConfigError(f"--out {path} is a directory; name a file, such as {path / 'predictions.csv'}")
    with contextlib.nullcontext(sys.stdout.buffer) if path is None else opened_output(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True)
        try:
            yield text
        finally:
            text.detach()
