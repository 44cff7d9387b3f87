"""Commands for trained runs: evaluate, predict, export and report."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rankingmatch.cli.shared import (
    PATH,
    best_option,
    device_option,
    json_option,
    on_option,
    ray_address_option,
    trust_option,
    was_closed,
)
from rankingmatch.core.errors import ConfigError


@click.command(short_help="Evaluate a trained RUN on its test images, or on others.")
@click.argument("run", type=PATH)
@click.argument("data", required=False)
@best_option
@device_option
@trust_option
@json_option
def evaluate(run: Path, data: str | None, best: bool, device: str | None, as_json: bool) -> None:
    """Evaluate a trained RUN on its test images, or on those of DATA, a dataset or a folder."""
    from rankingmatch.cli.printing import print_evaluation
    from rankingmatch.data import under_way
    from rankingmatch.runs import evaluate as evaluation
    from rankingmatch.runs.display import loading_progress

    with loading_progress(quiet=as_json) as progress, under_way(progress, "evaluating"):
        report = evaluation.evaluate(run, data, best=best, device=device)
    if as_json:
        click.echo(json.dumps(report))
    else:
        print_evaluation(report)


@click.command(short_help="Predict the labels of IMAGES.")
@click.argument("run", type=PATH)
@click.argument("images", nargs=-1, required=True)
@click.option("--out", type=PATH, metavar="FILE", help="Output file. [standard output]")
@click.option("--probabilities", is_flag=True, help="Also write the probabilities of all classes.")
@click.option("--sort-into", type=PATH, metavar="DIR", help="Copy images into class folders.")
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
    from rankingmatch.runs.display import loading_progress
    from rankingmatch.runs.predict import describe_skipped, predict_into, read_names

    if out is None and was_closed("stdout"):
        raise ConfigError("standard output is closed; name a file with --out")
    count, skipped = 0, list[Any]()
    with loading_progress(quiet=quiet) as progress:
        names = read_names(sys.stdin.buffer, b"\0" if null else b"\n")
        given = {**options, "as_json": as_json, "standard_input": names, "progress": progress}
        for batch in predict_into(Run(run), images, out or sys.stdout.buffer, **given):
            count += len(batch.files)
            skipped += batch.skipped
    if out is not None and not as_json and not quiet:
        folders = "" if options["sort_into"] is None else f" and {options['sort_into']}"
        click.echo(f"{count:,} images → {out}{folders}", err=True)
    if skipped and not quiet:
        click.echo(f"{len(skipped):,} files were skipped: {describe_skipped(skipped)}", err=True)


@click.command()
@click.argument("run", type=PATH)
@click.argument("file", type=PATH)
@click.option(
    "--input",
    "values",
    type=click.Choice(["uint8", "float"]),
    default="uint8",
    help="Input of the model: uint8 in 0…255, or float32 in 0…1. [uint8]",
)
@click.option("--logits", is_flag=True, help="Return logits instead of probabilities.")
@best_option
@trust_option
@json_option
def export(run: Path, file: Path, values: str, logits: bool, best: bool, as_json: bool) -> None:
    """Export the model of a trained RUN to an ONNX FILE.

    It includes normalization and softmax, and takes batches of any size. Before it is written, its outputs in ONNX
    Runtime are compared with PyTorch. RUN may also be the safetensors file of a model.
    """
    from rankingmatch.data import under_way
    from rankingmatch.runs import export as exporting
    from rankingmatch.runs.display import loading_progress

    with loading_progress(quiet=as_json) as progress, under_way(progress, "exporting and comparing"):
        exported = exporting.export(run, file, input=values, logits=logits, best=best)
    click.echo(json.dumps(asdict(exported)) if as_json else str(exported))


@click.command(short_help="Write a report on one RUN, or on several side by side.")
@click.argument("runs", nargs=-1, type=PATH, metavar="RUN…")
@click.option("--out", type=PATH, metavar="FILE", help="Output file. [RUN/report.html; for several runs, report.html]")
@click.option("--figures", type=PATH, metavar="DIR", help="Also write each figure as PNG and SVG.")
@click.option(
    "--audit",
    "audited",
    type=click.IntRange(1, 10**9),
    metavar="N",
    default=10_000,
    help="Maximum number of unlabeled images whose pseudo-labels are shown. [10000]",
)
@click.option(
    "--points",
    type=click.IntRange(10, 10**6),
    metavar="N",
    help="Maximum number of points in an embedding; t-SNE is slow for many. [2000; fewer for several runs]",
)
@device_option
@trust_option
@json_option
def report(runs: tuple[Path, ...], out: Path | None, as_json: bool, **options: Any) -> None:
    """Write a report on one RUN, or on several side by side, that opens in any browser, even offline."""
    from rankingmatch.runs.display import loading_progress
    from rankingmatch.runs.report import write_report

    with loading_progress(quiet=as_json) as progress:
        page = write_report(runs, out, **options, progress=progress)
    if as_json:
        click.echo(json.dumps({"report": str(page), "bytes": page.stat().st_size}))
    else:
        click.echo(f"report: {page}")
