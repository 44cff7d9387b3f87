"""`rankingmatch bench`: grids of runs, here or on a cluster."""

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankingmatch.cli.options import json_option
from rankingmatch.core.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from rankingmatch.bench.cluster import Resources


@click.command()
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
    **where: Any,
) -> None:
    """Run grids of runs and print their tables.

    RECIPES are names of recipes that come along (table1, table5, digits …), or TOML files. Finished runs are kept, an
    interrupted one goes on. On a cluster, all machines must see --out; a run whose machine is lost goes on elsewhere.
    """
    from rankingmatch.bench.command import Files, run_recipes
    from rankingmatch.bench.scale import SCALES

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
        needs=_resources(jobs, **where),
    )


def _resources(jobs: int, on: str, ray_address: str | None, **per_run: float | None) -> "Resources | None":
    """What a run takes of a Ray cluster; None where there is none."""
    from rankingmatch.bench.cluster import Resources

    if on == "ray" and jobs > 1:
        raise ConfigError("--jobs goes with --on here; a cluster has room for as many as --cpus-per-run allows")
    if on == "ray":
        return Resources(ray_address, int(per_run["cpus_per_run"] or 1), per_run["gpus_per_run"] or 0.0)
    for name, value in {"ray_address": ray_address, **per_run}.items():
        if value is not None:
            raise ConfigError(f"--{name.replace('_', '-')} goes with --on ray")
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
