"""`rankingmatch bench labeling`: simulated labeling, in our order and in random order."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankingmatch.cli.labeling import method_option
from rankingmatch.cli.options import PathType, json_option
from rankingmatch.labeling.head_methods import require_head_method

if TYPE_CHECKING:
    from rankingmatch.bench.tables import Table
    from rankingmatch.labeling.simulate import Simulation


@click.command()
@click.argument("data", nargs=-1)
@click.option("--seeds", type=click.IntRange(min=1), default=5, help="Number of seeds, starting at 0. [5]")
@method_option
@click.option("--data-dir", type=PathType(), help="Directory of the datasets' files.")
@click.option("--csv", type=PathType(), help="Also write the errors, seed by seed, to this file.")
@json_option
@click.option("--quiet", is_flag=True, help="Do not show progress.")
def bench_labeling(
    data: tuple[str, ...],
    seeds: int,
    method: str,
    data_dir: Path | None,
    csv: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Simulate the labeling of DATA, and print the test error for several numbers of labels.

    DATA are folders or datasets with labels and test images; by default, the digits. Pictures are labeled in the order
    of `rankingmatch label` and in random order; the head on top of the frozen network is the same. The audit is
    simulated, too: how often does its interval contain the true error?
    """
    from rankingmatch.bench.tables import csv_rows
    from rankingmatch.core.atomic import write_output
    from rankingmatch.core.names import to_utf8
    from rankingmatch.labeling.known_data import known_pool
    from rankingmatch.labeling.simulate import ORDERS, simulate

    require_head_method(method)
    tables = []
    for name in data or ("digits",):
        pool = known_pool(name, data_dir)
        simulations = []
        for seed in range(seeds):
            if not quiet:
                click.echo(f"{pool.title}: seed {seed + 1} of {seeds}", err=True)
            simulations += [simulate(pool, order, seed, method=method) for order in ORDERS]
        tables.append(_table(pool.title, simulations))
        if as_json:
            _print_json(pool.title, simulations)
        else:
            _print(tables[-1], simulations)
    if csv is not None:
        write_output(csv, to_utf8(csv_rows(tables)))


def _table(title: str, simulations: list["Simulation"]) -> "Table":
    """Test errors: a row for each order, a column for each number of labels."""
    from rankingmatch.bench.tables import Figure, Table, TableRow

    sizes, orders = simulations[0].sizes, dict.fromkeys(one.order for one in simulations)
    rows = []
    for order in orders:
        errors = zip(*(one.errors for one in simulations if one.order == order), strict=True)
        rows.append(TableRow(order, tuple(map(Figure, errors)), ("",) * len(sizes)))
    return Table(title, "test error %", tuple(f"{size} labels" for size in sizes), tuple(rows))


def _print(table: "Table", simulations: list["Simulation"]) -> None:
    from rankingmatch.bench.tables import print_table
    from rankingmatch.core.terminal import plain_console
    from rankingmatch.labeling.simulate import interval_counts

    print_table(table, plain_console(wide=True))
    ours = [one for one in simulations if one.order == "ours"]
    counts = {f"at {size} labels": count for size, count in zip(ours[0].sizes, interval_counts(ours), strict=True)}
    counts["where it looks best"] = sum(one.best_look.contains_truth for one in ours)
    for when, count in counts.items():
        click.echo(f"audit {when}: the interval contains the true error in {count} of {len(ours)} labelings")


def _print_json(title: str, simulations: list["Simulation"]) -> None:
    for one in simulations:
        looks = [{"low": look.low, "high": look.high, "error": look.error} for look in one.looks]
        values = {"data": title, "order": one.order, "seed": one.seed}
        click.echo(json.dumps({**values, "labels": one.sizes, "test_error": one.errors, "audit": looks}))
