"""`rankingmatch bench labeling`: simulated labeling, in our order and in random order."""

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankingmatch.cli.labeling import method_option
from rankingmatch.cli.options import PathType, json_option
from rankingmatch.heads.names import DEFAULT_METHOD, require_head_method

if TYPE_CHECKING:
    from rankingmatch.bench.simulated_labeling import Pool, Simulation
    from rankingmatch.bench.tables import Table


@click.command()
@click.argument("data", nargs=-1)
@click.option("--seeds", type=click.IntRange(min=1), default=5, help="Number of seeds, starting at 0. [5]")
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

    DATA are folders or datasets with labels and test images; by default, the digits. Pictures are labeled in the order
    of `rankingmatch label` and in random order; the head on top of the frozen network is the same. The audit is
    simulated, too: how often does its interval contain the true error?
    """
    from rankingmatch.bench.known_data import known_pool
    from rankingmatch.bench.measurement import require_directory
    from rankingmatch.bench.tables import csv_rows
    from rankingmatch.core.atomic import write_output
    from rankingmatch.core.names import to_utf8

    require_head_method(method)
    if keep is not None:
        require_directory(keep)
    tables = []
    for name in data or ("digits",):
        pool = known_pool(name, data_dir)
        path = None if keep is None else keep / _file_name(name, method)
        simulations = _simulations(pool, seeds, method, path, quiet)
        tables.append(_table(pool.title, simulations))
        if as_json:
            _print_json(pool.title, simulations)
        else:
            _print(tables[-1], simulations)
    if csv is not None:
        write_output(csv, to_utf8(csv_rows(tables)))


def _file_name(data: str, method: str) -> str:
    """Where the labelings of a dataset or folder are kept; the default method is not named."""
    named = data if method == DEFAULT_METHOD else f"{data}-{method}"
    return f"labeling-{re.sub(r'[^-.+0-9A-Za-z_]+', '_', named)}.json"


def _simulations(pool: "Pool", seeds: int, method: str, path: Path | None, quiet: bool) -> list["Simulation"]:
    """The labelings of a pool, both orders of each seed; those in a file are not simulated again."""
    from rankingmatch.bench.measurement import command_line, keep_rows
    from rankingmatch.bench.simulated_labeling import ORDERS, simulate

    found = {} if path is None else _kept(path)
    wanted = [(seed, order) for seed in range(seeds) for order in ORDERS]
    for seed, order in (one for one in wanted if one not in found):
        if not quiet:
            click.echo(f"{pool.title}: seed {seed + 1} of {seeds}, order {order}", err=True)
        found[seed, order] = simulate(pool, order, seed, method=method)
        if path is not None:
            rows = [{"data": pool.title, "method": method, **asdict(found[one])} for one in wanted if one in found]
            keep_rows(path, command_line(["rankingmatch", *sys.argv[1:]]), rows)
    return [found[one] for one in wanted]


def _kept(path: Path) -> dict[tuple[int, str], "Simulation"]:
    """The labelings in a file, if it exists and was written by this very code."""
    from rankingmatch.bench.measurement import read_measurement
    from rankingmatch.core.versions import source_commit

    commit = source_commit()
    known = path.exists() and commit and not commit.endswith("+") and read_measurement(path).commit == commit
    return read_labelings(path) if known else {}


def read_labelings(path: Path) -> dict[tuple[int, str], "Simulation"]:
    """The labelings in a file, by seed and order."""
    from rankingmatch.bench.measurement import read_measurement
    from rankingmatch.core.errors import RunError, first_line

    try:
        return {(one.seed, one.order): one for one in map(_simulation, read_measurement(path).rows)}
    except (ValueError, KeyError) as error:
        raise RunError(f"{path} cannot be read: {first_line(error)}; restore it, or delete it") from error


def _simulation(row: dict[str, Any]) -> "Simulation":
    from rankingmatch.bench.simulated_labeling import AuditLook, Simulation
    from rankingmatch.core.untrusted import check_value, typed

    hints = {"order": str, "seed": int, "sizes": tuple[int, ...], "errors": tuple[float, ...]}
    values = {name: check_value(name, row[name], hint) for name, hint in hints.items()}
    looks = check_value("looks", row["looks"], list[dict[str, Any]])
    return Simulation(**values, looks=tuple(typed(AuditLook, look) for look in looks))


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
    from rankingmatch.bench.simulated_labeling import interval_counts
    from rankingmatch.bench.tables import print_table
    from rankingmatch.core.terminal import plain_console

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
