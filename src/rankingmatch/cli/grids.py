"""`rankingmatch bench`: grids of runs, on this machine or on a cluster, and simulated labeling."""

import json
import re
import shlex
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankingmatch.cli.labeling import method_option
from rankingmatch.cli.shared import PATH, NumberType, json_option, on_option, ray_address_option, trust_option
from rankingmatch.core.errors import ConfigError, unknown_name
from rankingmatch.core.options import flag
from rankingmatch.heads import HEAD_METHOD, require_head_method

if TYPE_CHECKING:
    from rankingmatch.bench.simulated_labeling import Pool, Simulation


@click.command()
@click.argument("data", nargs=-1)
@click.option(
    "--seeds", type=click.IntRange(1, 10_000), metavar="N", default=5, help="Number of seeds, starting at 0. [5]"
)
@method_option
@click.option("--data-dir", type=PATH, help="Directory of the datasets' files.")
@click.option("--csv", type=PATH, help="Also write the errors, seed by seed, to this file.")
@click.option(
    "--keep",
    type=PATH,
    metavar="DIR",
    help="Keep each labeling in DIR, in one small file for each DATA, and do not simulate it again with this commit.",
)
@json_option
@click.option("--quiet", is_flag=True, help="Do not show progress.")
def bench_labeling(
    data: tuple[str, ...],
    method: str,
    data_dir: Path | None,
    csv: Path | None,
    keep: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Simulate the labeling of DATA, and print the test error for several numbers of labels.

    DATA are folders or datasets with labels and test images; by default, the digits. Images are labeled in the order
    of `rankingmatch label` and in random order; the head on top of the frozen network is the same. The random checks
    are simulated, too: how often does their interval contain the true error?
    """
    from rankingmatch.bench.simulated_labeling import error_table, interval_counts, known_pool
    from rankingmatch.bench.tables import csv_rows, print_table
    from rankingmatch.core.atomic import write_output
    from rankingmatch.core.names import plain_console, to_utf8

    require_head_method(method)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    tables = []
    for name in data or ("digits",):
        pool = known_pool(name, data_dir)
        named = name if method == HEAD_METHOD else f"{name}-{method}"
        file = f"labeling-{re.sub(r'[^-.+0-9A-Za-z_]+', '_', named)}.json"
        simulations = _simulations(pool, method, None if keep is None else keep / file, **options)
        tables.append(error_table(pool.title, simulations))
        if as_json:
            for one in simulations:
                values = {"data": pool.title, "order": one.order, "seed": one.seed}
                looks = [asdict(look) for look in one.looks]
                click.echo(json.dumps({**values, "labels": one.sizes, "test_error": one.errors, "audit": looks}))
            continue
        print_table(tables[-1], plain_console(wide=True))
        ours = [one for one in simulations if one.order == "ours"]
        for when, count in interval_counts(ours).items():
            click.echo(
                f"random checks, {when}: the interval contains the true error in {count} of {len(ours)} labelings"
            )
    if csv is not None:
        write_output(csv, to_utf8(csv_rows(tables)))


def _simulations(pool: "Pool", method: str, path: Path | None, seeds: int, quiet: bool) -> list["Simulation"]:
    """The labelings of a pool, both orders of each seed; those that this very code has kept are not simulated again."""
    from rankingmatch.bench.results import command_line, keep_rows, read_measurement
    from rankingmatch.bench.simulated_labeling import ORDERS, read_labelings, simulate
    from rankingmatch.runs.directory import source_commit

    found, commit = {}, source_commit()
    if path is not None and path.exists() and commit[-1:] not in ("", "+") and read_measurement(path).commit == commit:
        found = read_labelings(path)
    wanted = [(seed, order) for seed in range(seeds) for order in ORDERS]
    for seed, order in (one for one in wanted if one not in found):
        if not quiet:
            click.echo(f"{pool.title}: seed {seed + 1} of {seeds}, order {order}", err=True)
        found[seed, order] = simulate(pool, order, seed, method=method)
        if path is not None:
            rows = [{"data": pool.title, "method": method, **asdict(found[one])} for one in wanted if one in found]
            keep_rows(path, command_line(["rankingmatch", *sys.argv[1:]]), rows)
    return [found[one] for one in wanted]


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
    "--folds", type=click.IntRange(1, 10000), metavar="N", help="Number of seeds, starting at 0. [the recipe's]"
)
@click.option("--jobs", type=click.IntRange(1, 1024), metavar="N", default=1, help="Number of runs at a time. [1]")
@on_option("Where to run: in processes on this machine, or on a Ray cluster.")
@ray_address_option
@click.option("--cpus-per-run", type=click.IntRange(1, 1024), metavar="N", help="With --on ray: CPUs per run. [1]")
@click.option(
    "--gpus-per-run", type=NumberType(0, 1024), metavar="N", help="With --on ray: GPUs per run, or a fraction. [0]"
)
@click.option("--dry-run", is_flag=True, help="Only list the runs, with the times of finished ones.")
@click.option("--out", type=PATH, default=Path("runs/bench"), help="Directory. [runs/bench]")
@click.option(
    "--keep",
    type=PATH,
    metavar="DIR",
    help="Keep the results of finished runs in DIR, in a small file for each recipe, and do not repeat these runs.",
)
@click.option("--markdown", type=PATH, help="Also write the tables to this file.")
@click.option("--csv", type=PATH, help="Also write the figures, fold by fold, to this file.")
@click.option("--latex", type=PATH, help="Also write the tables as LaTeX to this file.")
@click.option(
    "--figures",
    type=PATH,
    help="Also plot errors against the number of labels, or time and memory, into this directory.",
)
@click.option("--data", metavar="FOLDER", help="Folder of images, or a dataset, instead of the one in the recipe.")
@click.option("--data-dir", metavar="DIR", help="Directory of the datasets' files; missing ones are downloaded.")
@click.option("--device", metavar="STR", help="Device: cpu, cuda, cuda:1, mps…")
@click.option("--set", "given", multiple=True, metavar="OPTION=VALUE", help="Set an option of `train` for all runs.")
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
    from rankingmatch.bench.cluster import Resources
    from rankingmatch.bench.recipe import SCALES

    if options["scale"] is not None and options["scale"] not in SCALES:
        raise unknown_name("scale", options["scale"], SCALES)
    settings = {name: options.pop(name) for name in ("data_dir", "device")}
    settings = {name: value for name, value in settings.items() if value is not None}
    settings |= dict(_setting(text) for text in given)
    files = OutputFiles(**{name: options.pop(name) for name in ("markdown", "csv", "latex", "figures")})
    on, cluster = (
        options.pop("on"),
        {name: options.pop(name) for name in ("ray_address", "cpus_per_run", "gpus_per_run")},
    )
    resources = None
    if on == "ray":
        if options["jobs"] > 1:
            raise ConfigError("--jobs is for --on here; a cluster trains as many runs as --cpus-per-run allows")
        resources = Resources(cluster["ray_address"], cluster["cpus_per_run"] or 1, cluster["gpus_per_run"] or 0.0)
    elif unused := [flag(name) for name, value in cluster.items() if value is not None]:
        raise ConfigError(f"{unused[0]} needs --on ray")
    command = shlex.join(["rankingmatch", *sys.argv[1:]])
    run_recipes(recipes, BenchOptions(settings=settings, resources=resources, **options), files, command)


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
