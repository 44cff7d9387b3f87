"""`rankingmatch bench labeling`: simulated labeling, in our order and in random order."""

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankingmatch.cli.labeling import method_option
from rankingmatch.cli.shared import PathType, json_option
from rankingmatch.heads import HEAD_METHOD, require_head_method

if TYPE_CHECKING:
    from rankingmatch.bench.simulated_labeling import Pool, Simulation


@click.command()
@click.argument("data", nargs=-1)
@click.option(
    "--seeds", type=click.IntRange(1, 10_000), metavar="N", default=5, help="Number of seeds, starting at 0. [5]"
)
@method_option
@click.option("--data-dir", type=PathType(), help="Directory of the datasets' files.")
@click.option("--csv", type=PathType(), help="Also write the errors, seed by seed, to this file.")
@click.option(
    "--keep",
    type=PathType(),
    metavar="DIR",
    help="Keep each labeling in DIR, in one small file for each DATA, and do not simulate it again with this commit.",
)
@json_option
@click.option("--quiet", is_flag=True, help="Do not show progress.")
def bench_labeling(
    data: tuple[str, ...],
    seeds: int,
    method: str,
    data_dir: Path | None,
    csv: Path | None,
    keep: Path | None,
    as_json: bool,
    quiet: bool,
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
        simulations = _simulations(pool, seeds, method, None if keep is None else keep / file, quiet)
        tables.append(error_table(pool.title, simulations))
        if as_json:
            _print_json(pool.title, simulations)
            continue
        print_table(tables[-1], plain_console(wide=True))
        ours = [one for one in simulations if one.order == "ours"]
        for when, count in interval_counts(ours).items():
            click.echo(
                f"random checks, {when}: the interval contains the true error in {count} of {len(ours)} labelings"
            )
    if csv is not None:
        write_output(csv, to_utf8(csv_rows(tables)))


def _simulations(pool: "Pool", seeds: int, method: str, path: Path | None, quiet: bool) -> list["Simulation"]:
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


def _print_json(title: str, simulations: list["Simulation"]) -> None:
    for one in simulations:
        values = {"data": title, "order": one.order, "seed": one.seed}
        looks = [asdict(look) for look in one.looks]
        click.echo(json.dumps({**values, "labels": one.sizes, "test_error": one.errors, "audit": looks}))
