"""The ranking losses on several processes: each computes n/p of the n rows of the matrix.

Time is the CPU time of a process for forward and backward, the median of a few; memory is its growth, at the peak. The
difference is the largest one to a single process, of the value or an entry of the gradient.

    python benchmarks/ranking_processes.py   # minutes; BatchAll, whose time grows with n³, up to 1,792
    python benchmarks/ranking_processes.py --rows 448 --processes 1 2
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from measuring import MEBI, Rows, add_keep, growth_of, markdown, report, seconds
from ranking import logits_and_labels
from rankingmatch.core.distributed import is_first, process_group, world_size
from rankingmatch.losses import batch_all_triplet, batch_hard_triplet, batch_mean_triplet, contrastive, over_processes

ROWS, PROCESSES = (448, 896, 1792, 3584, 7168), (1, 2, 4)
LOSSES: dict[str, Callable[..., Tensor]] = {
    "BatchMean": batch_mean_triplet,
    "BatchHard": batch_hard_triplet,
    "Contrastive": contrastive,
    "BatchAll": batch_all_triplet,
}
MOST_ROWS = {"BatchAll": 1792}


def forward_and_backward(loss: Callable[..., Tensor], logits: Tensor, labels: Tensor) -> Tensor:
    """The value and the gradient of a loss, as one vector."""
    logits.grad = None
    value = over_processes(loss, logits, labels)
    value.backward()
    assert logits.grad is not None
    return torch.cat([value.detach().view(1), logits.grad.flatten()])


def measure(rows: int, name: str) -> dict[str, float]:
    """Seconds, MiB and the largest difference, of the process that has most of each."""
    logits, labels = logits_and_labels(rows)
    work = partial(forward_and_backward, LOSSES[name], logits, labels)
    forward_and_backward(LOSSES[name], *logits_and_labels(20))  # to warm up
    grown = growth_of(work)
    times = [seconds(work) for _ in range(3)]
    found = work()
    difference = 0.0
    if world_size() > 1:
        logits.grad = None
        value = LOSSES[name](logits, labels)
        value.backward()
        assert logits.grad is not None
        one = torch.cat([value.detach().view(1), logits.grad.flatten()])
        difference = float((found - one).abs().max())
    most = torch.tensor([statistics.median(times), grown / MEBI, difference], dtype=torch.float64)
    if world_size() > 1:
        dist.all_reduce(most, dist.ReduceOp.MAX)
    return dict(zip(("seconds", "memory", "difference"), most.tolist(), strict=True))


def in_processes(count: int, rows: int, name: str) -> dict[str, float]:
    """The output of `measure` in that many processes."""
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)] if count > 1 else []
    command = [sys.executable, *several, __file__, "--worker", name, "--rows", str(rows)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def cell(found: dict[str, float]) -> str:
    """A cell of the table."""
    text = f"{1000 * found['seconds']:,.0f} ms, {found['memory']:,.0f} MiB"
    return text if not found["difference"] else f"{text}, {found['difference']:.0e}"


def table(rows: Rows) -> str:
    """A line for each loss and number of rows, a column for each number of processes."""
    counts = dict.fromkeys(row["processes"] for row in rows)
    lines: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        lines.setdefault((row["loss"], row["rows"]), []).append(cell(row))
    header = ("loss", "rows", *(f"{count} process{'es' if count > 1 else ''}" for count in counts))
    return markdown(header, [(name, f"{count:,}", *cells) for (name, count), cells in lines.items()])


def main() -> None:
    """Measure each loss and number of rows in new processes, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--processes", type=int, nargs="+", default=PROCESSES)
    add_keep(parser)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        torch.set_num_threads(1)
        with process_group():
            found = measure(given.rows[0], given.worker)
            if is_first():
                print(json.dumps(found))
        return
    rows: Rows = []
    for name in LOSSES:
        for count in (count for count in given.rows if count <= MOST_ROWS.get(name, count)):
            print(f"measuring {name}, {count:,} rows", file=sys.stderr)
            for processes in given.processes:
                found = in_processes(processes, count, name)
                rows.append({"loss": name, "rows": count, "processes": processes, **found})
    report(table(rows), rows, given.keep)


if __name__ == "__main__":
    main()
