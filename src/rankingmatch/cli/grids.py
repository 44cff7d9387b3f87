"""`rankingmatch bench`: grids of runs, on this machine or on a cluster."""

import shlex
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankingmatch.cli.labeling_bench import bench_labeling
from rankingmatch.cli.shared import NumberType, PathType, json_option, on_option, ray_address_option, trust_option
from rankingmatch.core.errors import ConfigError, unknown_name
from rankingmatch.core.options import flag

if TYPE_CHECKING:
    from rankingmatch.bench.cluster import Resources


class BenchCommand(click.Command):
    """A command for recipes, and for benchmarks with options of their own, which have names like recipes."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the benchmark that the first argument names, or else of the recipes."""
        if args and args[0] in BENCHMARKS:
            return BENCHMARKS[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


BENCHMARKS = {"labeling": bench_labeling}


@click.command(cls=BenchCommand)
@click.argument("recipes", nargs=-1)
@click.option("--scale", metavar="NAME", help="Size of the runs: tiny, laptop or paper. [the recipe's, usually paper]")
@click.option(
    "--folds",
    type=click.IntRange(1, 10000),
    metavar="N",
    help="Number of seeds, starting at 0. [the recipe's]",
)
@click.option("--jobs", type=click.IntRange(1, 1024), metavar="N", default=1, help="Number of runs at a time. [1]")
@on_option("Where to run: in processes on this machine, or on a Ray cluster.")
@ray_address_option
@click.option("--cpus-per-run", type=click.IntRange(1, 1024), metavar="N", help="With --on ray: CPUs per run. [1]")
@click.option(
    "--gpus-per-run", type=NumberType(0, 1024), metavar="N", help="With --on ray: GPUs per run, or a fraction. [0]"
)
@click.option("--dry-run", is_flag=True, help="Only list the runs, with the times of finished ones.")
@click.option("--out", type=PathType(), default=Path("runs/bench"), help="Directory. [runs/bench]")
@click.option(
    "--keep",
    type=PathType(),
    metavar="DIR",
    help="Keep the results of finished runs in DIR, in a small file for each recipe, and do not repeat these runs.",
)
@click.option("--markdown", type=PathType(), help="Also write the tables to this file.")
@click.option("--csv", type=PathType(), help="Also write the figures, fold by fold, to this file.")
@click.option("--latex", type=PathType(), help="Also write the tables as LaTeX to this file.")
@click.option(
    "--figures",
    type=PathType(),
    help="Also draw errors against the number of labels, or time and memory, into this directory.",
)
@click.option("--data", metavar="FOLDER", help="Folder of images, or a dataset, instead of the one in the recipe.")
@click.option(
    "--data-dir", metavar="DIR", help="Directory that has the datasets' files, or that they are downloaded to."
)
@click.option("--device", metavar="STR", help="Device: cpu, cuda, cuda:1, mps…")
@click.option("--set", "given", multiple=True, metavar="OPTION=VALUE", help="Any option of `train`, for all runs.")
@trust_option
@json_option
@click.option("--quiet", is_flag=True, help="Show neither progress nor tables.")
def bench(recipes: tuple[str, ...], given: tuple[str, ...], **options: Any) -> None:
    """Run grids of runs and print their tables.

    RECIPES are names of included recipes (table1, table5, digits…), or TOML files. Finished runs are kept, and an
    interrupted one is resumed. On a cluster, all machines must see --out; a run whose machine is lost is resumed on
    another one. `rankingmatch bench labeling` simulates labeling and has its own options.
    """
    from rankingmatch.bench import BenchOptions, OutputFiles, run_recipes
    from rankingmatch.bench.recipe import SCALES

    if options["scale"] is not None and options["scale"] not in SCALES:
        raise unknown_name("scale", options["scale"], SCALES)
    settings = {name: options.pop(name) for name in ("data_dir", "device")}
    settings = {name: value for name, value in settings.items() if value is not None}
    settings |= dict(_setting(text) for text in given)
    files = OutputFiles(**{name: options.pop(name) for name in ("markdown", "csv", "latex", "figures")})
    cluster = {name: options.pop(name) for name in ("on", "ray_address", "cpus_per_run", "gpus_per_run")}
    resources = _resources(options["jobs"], **cluster)
    command = shlex.join(["rankingmatch", *sys.argv[1:]])
    run_recipes(recipes, BenchOptions(settings=settings, resources=resources, **options), files, command)


def _resources(jobs: int, on: str, ray_address: str | None, **per_run: float | None) -> "Resources | None":
    """What a run needs of a Ray cluster; None without one."""
    from rankingmatch.bench.cluster import Resources

    if on == "ray" and jobs > 1:
        raise ConfigError("--jobs is for --on here; a cluster trains as many runs as --cpus-per-run allows")
    if on == "ray":
        return Resources(ray_address, int(per_run["cpus_per_run"] or 1), per_run["gpus_per_run"] or 0.0)
    for name, value in {"ray_address": ray_address, **per_run}.items():
        if value is not None:
            raise ConfigError(f"{flag(name)} needs --on ray")
    return None


def _setting(text: str) -> tuple[str, Any]:
    """`steps=500` as a name and a value; a value that is not TOML is a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text}: write OPTION=VALUE, such as --set steps=500")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    return name.strip().removeprefix("--").replace("-", "_"), parsed
