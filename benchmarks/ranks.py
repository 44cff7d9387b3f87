"""How much faster two processes train than one, each with one thread.

Both take the same steps of the same run. In every round, first one process is measured and then two, each newly started
and after a warm-up step, and the medians are compared. Wall time needs as many idle cores as processes; CPU time, which
other programs disturb less, shows how well the work is divided but does not include waiting.

    python benchmarks/ranks.py                    # wrn-28-2 on 32×32×3, rankingmatch-bm, 1 against 2 processes
    python benchmarks/ranks.py --rounds 7 --steps 4 --batch-size 16
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch

from rankingmatch.core.distributed import is_first, process_group
from steps import wide_case

TARGET = 1.8


def measure(given: argparse.Namespace) -> None:
    """Take steps, alone or in the processes of torchrun, and print the mean wall and CPU seconds per step."""
    torch.set_num_threads(1)
    with process_group():
        case = wide_case(given.method, given.batch_size, given.side, network=given.network)
        case.step()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(given.steps):
            case.step()
        spent = (time.perf_counter() - wall) / given.steps, (time.process_time() - cpu) / given.steps
        if is_first():
            print(json.dumps(spent))


def seconds(count: int) -> tuple[float, float]:
    """The output of `measure` in that many processes."""
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)] if count > 1 else []
    command = [sys.executable, *several, *sys.argv, "--worker"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    wall, cpu = json.loads(done.stdout)
    return wall, cpu


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="rankingmatch-bm")
    parser.add_argument("--network", default="wrn-28-2")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        measure(given)
        return
    print("| round | processes | wall | CPU | processes | wall | CPU | speedup, wall | speedup, CPU |")
    print("|---|---|---|---|---|---|---|---|---|")
    rounds = []
    for number in range(given.rounds):
        one, several = seconds(1), seconds(given.processes)
        rounds.append((*one, *several))
        print(row(str(number + 1), given.processes, *rounds[-1]), flush=True)
    print(row("median", given.processes, *(statistics.median(column) for column in zip(*rounds, strict=True))))
    print(f"\ntarget with 2 processes: {TARGET} ×")


def row(name: str, count: int, wall: float, cpu: float, walls: float, cpus: float) -> str:
    """A row of the table; seconds are per step."""
    spent = f"1 | {wall:.2f} s | {cpu:.2f} s | {count} | {walls:.2f} s | {cpus:.2f} s"
    return f"| {name} | {spent} | {wall / walls:.2f} | {cpu / cpus:.2f} |"


if __name__ == "__main__":
    main()
