"""The test error of one process and of two: BatchNorm normalizes by the rows of a process, so the numbers differ.

python benchmarks/processes.py              # minutes for each of the four runs
python benchmarks/processes.py --steps 20 --folds 1
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import Rows, add_keep, markdown, report

TRAIN = ("-m", "rankingmatch", "train", "digits", "--labels", "40", "--method", "fixmatch-ra", "--threads", "1")


def test_error(processes: int, fold: int, more: list[str]) -> float:
    """The test error in percent of a run with that many processes."""
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    with tempfile.TemporaryDirectory() as directory:
        out = ["--seed", str(fold), "--out", f"{directory}/run", "--quiet", "--no-report", *more]
        command = [sys.executable, *(several if processes > 1 else []), *TRAIN, *out]
        subprocess.run(command, check=True, stdout=sys.stderr)
        return float(json.loads(Path(directory, "run/result.json").read_text())["test_error"])


def table(rows: Rows) -> str:
    """A line for each number of processes, a column for each fold."""
    lines: dict[int, list[str]] = {}
    for row in rows:
        lines.setdefault(row["processes"], []).append(f"{row['test_error']:.2f}")
    folds = dict.fromkeys(row["fold"] for row in rows)
    header = ("test error %", *(f"seed {fold}" for fold in folds))
    return markdown(header, [(f"{n} process{'es' if n > 1 else ''}", *errors) for n, errors in lines.items()])


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, help="steps of a run, by default those of digits")
    add_keep(parser)
    given = parser.parse_args()
    more = [] if given.steps is None else ["--steps", str(given.steps)]
    rows: Rows = [
        {"processes": count, "fold": fold, "test_error": test_error(count, fold, more)}
        for count in given.processes
        for fold in range(given.folds)
    ]
    report(table(rows), rows, given.keep)


if __name__ == "__main__":
    main()
