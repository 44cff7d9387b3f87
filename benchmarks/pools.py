"""What a step costs if the pool of unlabeled images is large: time and memory of the sampler and of FlexMatch.

Each size is measured in a process of its own. Memory is the growth of the process; a step draws 448 rows.

    python benchmarks/pools.py
    python benchmarks/pools.py 1000 1000000000
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from measuring import CPU, MEBI, Rows, add_keep, markdown, report
from rankingmatch.core.devices import peak_memory, reset_peak_memory
from rankingmatch.core.randomness import Purpose
from rankingmatch.data import Dataset, Images, Split, assemble_split, indices_of_step
from rankingmatch.methods import PseudoLabels, Task
from rankingmatch.methods.targets import LearnedLabels

SIZES = (10**6, 10**7, 10**8)
ROWS, CLASSES, LABELED, STEPS = 448, 10, 40, 200


def grown(work: Callable[[], object]) -> float:
    """The peak growth of the process during a call, in MiB."""
    reset_peak_memory(CPU)
    before = peak_memory(CPU)
    work()
    return (peak_memory(CPU) - before) / MEBI


def seconds_of_a_step(step: Callable[[int], object]) -> float:
    """The median seconds of a few steps, each of another epoch."""
    times = []
    for number in range(STEPS):
        started = time.perf_counter()
        step(number * 10**6)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def split_of(size: int) -> Split:
    """A split of that many images without pixels."""
    labels = np.full(size, -1)
    labels[:LABELED] = np.arange(LABELED) % CLASSES
    images = np.lib.stride_tricks.as_strided(np.zeros((1, 1, 1, 1), np.uint8), (size, 1, 1, 1), (0, 0, 0, 0))
    dataset = Dataset(tuple(map(str, range(CLASSES))), Images(images, labels))
    return assemble_split(dataset, np.arange(LABELED), np.arange(0))


def measure(size: int) -> dict[str, float]:
    """Milliseconds and MiB at this size."""

    def draw(step: int) -> np.ndarray:
        return indices_of_step(size, ROWS, 0, Purpose.UNLABELED_ROWS, step)

    draw(0)
    sampler = grown(lambda: seconds_of_a_step(draw))
    split = split_of(size)
    memory = LearnedLabels(Task(CLASSES, 0, size))
    generator = torch.Generator().manual_seed(0)
    pseudo = PseudoLabels(torch.randint(CLASSES, (ROWS,), generator=generator), torch.ones(ROWS, dtype=torch.bool))

    def learn(step: int) -> None:
        memory.update(torch.from_numpy(draw(step)), pseudo)

    learn(0)
    rows = seconds_of_a_step(draw)
    return {
        "rows": 1000 * rows,
        "sampler": sampler,
        "split": sum(array.nbytes for array in (split.labels, split.truth, split.unlabeled_rows)) / MEBI,
        "learn": 1000 * (seconds_of_a_step(learn) - rows),
        "learning": grown(lambda: seconds_of_a_step(learn)),
        "learned": memory.labels.nbytes / MEBI,
    }


def table(rows: Rows) -> str:
    """A line for each size."""
    lines = [
        (
            f"{row['size']:,}",
            f"{row['rows']:.2f} ms, {row['sampler']:.1f} MiB",
            f"{row['split']:,.0f} MiB",
            f"{row['learn']:.2f} ms, {row['learning']:.1f} MiB",
            f"{row['learned']:,.0f} MiB",
        )
        for row in rows
    ]
    header = ("rows in the pool", "drawing the rows of a step", "labels and rows", "FlexMatch: a step", "its memory")
    return markdown(header, lines)


def main() -> None:
    """Measure each size in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="*", default=SIZES)
    add_keep(parser)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.worker:
        print(json.dumps(measure(given.sizes[0])))
        return
    rows: Rows = []
    for size in given.sizes:
        worker = [sys.executable, __file__, "--worker", str(size)]
        print(f"measuring {size:,} rows", file=sys.stderr)
        found = json.loads(subprocess.run(worker, check=True, stdout=subprocess.PIPE, text=True).stdout)
        rows.append({"size": size, **found})
    report(table(rows), rows, given.keep)


if __name__ == "__main__":
    main()
