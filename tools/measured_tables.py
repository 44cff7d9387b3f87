"""The blocks of the docs that are made from a measurement, docs/results/NAME.json.

NAME is that of a script in benchmarks/, perhaps with the variant that it measured: variants-digits is from variants.py.
The measurements labeling-DATA are from `rankingmatch bench labeling DATA`. The tables `gpus` and `images` of
docs/scale.md are arithmetic on what `benchmarks/network.py` measured, and on the assumptions below.
"""

import importlib
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from rankingmatch.bench.results import Measurement, read_measurement
from rankingmatch.bench.simulated_labeling import interval_counts, read_labelings
from rankingmatch.training.settings import TrainSettings

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
BENCHMARKS = ROOT / "benchmarks"
sys.path.append(str(BENCHMARKS))

LABELED, UNLABELED, CLASSES = 64, 448, 10
VIEWS = LABELED + 2 * UNLABELED  # a joint pass: labeled, weak and strong views
SPEED = 10e12  # operations per second that a GPU is assumed to sustain
POOL, GPUS = 10**8, 64
FLOAT = 4  # bytes
MEGA, GIGA, TERA = 1e6, 1e9, 1e12


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
    ours = [one for one in read_labelings(RESULTS / f"{name}.json").values() if one.order == "ours"]
    counts = interval_counts(ours)
    lines = [f"| labelings of {measured(name).rows[0]['data']} | {' | '.join(counts)} |"]
    lines.append("|---|" + "---|" * len(counts))
    lines.append(f"| {len(ours)} | {' | '.join(map(str, counts.values()))} |")
    return "\n".join([*lines, ""])


def gpus(name: str) -> str:
    """What training would need on more GPUs, each with a batch of its own."""
    image = measured(name).rows[0]
    counts = (1, 8, 64)
    seconds = VIEWS * image["training"] / SPEED
    steps = TrainSettings().total_steps  # the full protocol
    weights = FLOAT * image["parameters"]
    memory = VIEWS * image["activations"] + 4 * weights  # weights, gradients, momentum, EMA
    rows: dict[str, list[str]] = {
        "images per step": [f"{VIEWS * n:,}" for n in counts],
        "compute per step and GPU": [f"{VIEWS * image['training'] / TERA:.2f} TFLOP, {seconds:.2f} s" for _ in counts],
        "full protocol": [f"{seconds * steps / 3600:.1f} h" for _ in counts],
        "the same number of images as on 1 GPU": [f"{seconds * steps / n / 60:,.0f} minutes" for n in counts],
        "memory per GPU, without ranking": [f"{memory / GIGA:.1f} GB" for _ in counts],
        "gradients sent per GPU and step": [_megabytes(2 * (n - 1) / n * weights) for n in counts],
        "rows ranked together (all confident)": [f"{UNLABELED * n:,}" for n in counts],
        "one n/p × n matrix of the ranking loss": [_megabytes(UNLABELED * UNLABELED * n * FLOAT) for n in counts],
        "logits gathered for it, 10 classes": [_megabytes((n > 1) * UNLABELED * n * CLASSES * FLOAT) for n in counts],
        "pairs of views that a process needs": [f"{UNLABELED / seconds:,.0f} per second" for _ in counts],
    }
    return _markdown([f"{n} GPU{'s' if n > 1 else ''}" for n in counts], rows)


def images(name: str) -> str:
    """What a large pool would need, for two sizes of images."""
    seconds = VIEWS * measured(name).rows[0]["training"] / SPEED
    sizes = {"32×32×3": 32 * 32 * 3, "224×224×3": 224 * 224 * 3}  # bytes of an image
    steps = POOL / UNLABELED
    rows = {
        "bytes of an image": [f"{size:,}" for size in sizes.values()],
        "decoded on disk": [f"{POOL * size / TERA:.1f} TB" for size in sizes.values()],
        f"read per step and GPU, {UNLABELED} images": [_megabytes(UNLABELED * size) for size in sizes.values()],
        f"read by {GPUS} GPUs": [f"{GPUS * UNLABELED * size / seconds / GIGA:.1f} GB/s" for size in sizes.values()],
        f"random reads of {GPUS} GPUs": [f"{GPUS * UNLABELED / seconds:,.0f} per second"] * len(sizes),
        "steps until each image has been used once": [f"{steps:,.0f}, {steps / GPUS:,.0f} on {GPUS} GPUs"] * len(sizes),
    }
    return _markdown(list(sizes), rows)


def _megabytes(count: float) -> str:
    return f"{count / MEGA:.2g} MB" if count else "–"


def _markdown(head: list[str], rows: dict[str, list[str]]) -> str:
    lines = [["", *head], ["---"] * (1 + len(head)), *([name, *cells] for name, cells in rows.items())]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


MEASURED_BLOCKS: dict[str, Callable[..., str]] = {
    "table": table,
    "total": total,
    "source": source,
    "orders": orders,
    "intervals": intervals,
    "gpus": gpus,
    "images": images,
}
