"""The blocks of the docs that are made from a measurement, docs/results/NAME.json.

NAME is that of a script in benchmarks/, perhaps with the variant that it measured: variants-digits is from variants.py.
The measurements labeling-DATA are from `rankingmatch bench labeling DATA`.
"""

import importlib
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from extrapolation import many_gpus, many_images

from rankingmatch.bench.measurement import Measurement, read_measurement

RESULTS = Path(__file__).with_name("results")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))


def script_of(name: str) -> Path:
    """The benchmark that measures it."""
    return BENCHMARKS / f"{name.partition('-')[0]}.py"


def command_of(name: str) -> str:
    """The command that measures it."""
    simulated = name.startswith("labeling-")
    return "rankingmatch bench labeling DATA" if simulated else f"python benchmarks/{script_of(name).name}"


def measured(name: str) -> Measurement:
    """What is kept of a benchmark."""
    return read_measurement(RESULTS / f"{name}.json")


def table(name: str) -> str:
    """The table that the benchmark prints."""
    benchmark = importlib.import_module(script_of(name).stem)
    return f"{benchmark.table(measured(name).rows)}\n"


def total(name: str) -> str:
    """A sentence on the time of all steps of a benchmark."""
    benchmark, found = importlib.import_module(script_of(name).stem), measured(name)
    machine = found.machine.partition(",")[0]
    return f"On {machine}, these commands took {benchmark.total(found.rows)}.\n"


def source(*names: str) -> str:
    """By which commands, when, of which code and where it was measured."""
    found = [measured(name) for name in names if (RESULTS / f"{name}.json").exists()]
    texts = (f"`{one.command}`, {one.date}, commit {one.commit or 'unknown'}, {one.machine}" for one in found)
    return f"{'; '.join(texts)}.\n"


def orders(*names: str) -> str:
    """The test error of simulated labeling, in our order and in random order, of one or more folders."""
    kept = [measured(name).rows for name in names if (RESULTS / f"{name}.json").exists()]
    sizes = kept[0][0]["sizes"]
    lines = ["| test error % | method | order | " + " | ".join(f"{size} labels" for size in sizes) + " |"]
    lines.append("|---|---|---|" + "---|" * len(sizes))
    for rows in kept:
        for order in dict.fromkeys(row["order"] for row in rows):
            columns = zip(*(row["errors"] for row in rows if row["order"] == order), strict=True)
            title = f"{rows[0]['data']} | {rows[0]['method']} | {order}"
            lines.append(f"| {title} | " + " | ".join(map(_mean_and_deviation, columns)) + " |")
    return "\n".join([*lines, ""])


def _mean_and_deviation(values: tuple[float, ...]) -> str:
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def intervals(name: str) -> str:
    """How often the interval of the random checks contained the true error, at each number of labels."""
    ours = [row for row in measured(name).rows if row["order"] == "ours"]
    columns = zip(*(row["looks"] for row in ours), strict=True)
    counts = [sum(look["low"] <= look["error"] <= look["high"] for look in looks) for looks in columns]
    best = [min(row["looks"], key=lambda look: float(look["high"])) for row in ours]
    where_best = sum(look["low"] <= look["error"] <= look["high"] for look in best)
    lines = ["| labelings of " + ours[0]["data"] + " | " + " | ".join(f"{size} labels" for size in ours[0]["sizes"])]
    lines[0] += " | where the interval looks best |"
    lines.append("|---|" + "---|" * (len(counts) + 1))
    lines.append(f"| {len(ours)} | " + " | ".join(map(str, [*counts, where_best])) + " |")
    return "\n".join([*lines, ""])


def gpus(name: str) -> str:
    """What training would need on more GPUs."""
    return many_gpus(measured(name).rows[0])


def images(name: str) -> str:
    """What a large pool would need."""
    return many_images(measured(name).rows[0])


MEASURED_BLOCKS: dict[str, Callable[..., str]] = {
    "table": table,
    "total": total,
    "source": source,
    "orders": orders,
    "intervals": intervals,
    "gpus": gpus,
    "images": images,
}
