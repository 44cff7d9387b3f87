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

from measuring import Rows, add_keep, markdown, report
from rankingmatch.core.distributed import is_first, process_group
from steps import wide_case

TARGET = 1.8  # with 2 processes


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
    add_keep(parser)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        measure(given)
        return
    rows: Rows = []
    for number in range(given.rounds):
        (wall, cpu), (walls, cpus) = seconds(1), seconds(given.processes)
        one, several = {"wall": wall, "CPU": cpu}, {"wall": walls, "CPU": cpus}
        rows.append({"processes": given.processes, "one": one, "several": several})
        print(f"round {number + 1}: {wall / walls:.2f} × in wall time, {cpu / cpus:.2f} × in CPU time", file=sys.stderr)
    report(table(rows), rows, given.keep)


def table(rows: Rows) -> str:
    """The median seconds of a step, and of the rounds' speedups."""
    lines = []
    for clock, title in (("wall", "wall time per step"), ("CPU", "CPU time per step and process")):
        one, several = ([row[side][clock] for row in rows] for side in ("one", "several"))
        speedups = [alone / together for alone, together in zip(one, several, strict=True)]
        speedup = f"{statistics.median(speedups):.2f} × ({min(speedups):.2f} to {max(speedups):.2f})"
        lines.append((title, f"{statistics.median(one):.2f} s", f"{statistics.median(several):.2f} s", speedup))
    header = (f"median of {len(rows)} rounds", "1 process", f"{rows[0]['processes']} processes", "speedup")
    return f"{markdown(header, lines)}\n\nTarget with 2 processes: {TARGET} × in wall time."


if __name__ == "__main__":
    main()
