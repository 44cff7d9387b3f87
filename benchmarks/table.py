"""Everything except the network should cost almost nothing: one table of targets and measurements.

make bench                                           # prints it; takes minutes
python benchmarks/table.py --only ranking            # a part of it
python benchmarks/table.py --keep docs/results       # keeps it for the docs
"""

import argparse
import random
from collections.abc import Callable
from dataclasses import asdict

import torch

import augmentation
import inference
import photographs
import ranking
import steps
from measuring import Row, Rows, add_keep, markdown, report

PARTS: dict[str, Callable[[], list[Row]]] = {
    "augmentation": augmentation.rows,
    "ranking": ranking.rows,
    "steps": steps.rows,
    "inference": inference.rows,
    "photographs": photographs.rows,
}
HEADER = ("measure", "target", "measured (ours, theirs)", "verdict")


def table(rows: Rows) -> str:
    """The table, and how many targets are reached."""
    found = [Row(**row) for row in rows]
    reached = sum(row.reached for row in found)
    return f"{markdown(HEADER, [row.cells() for row in found])}\n\n{reached} of {len(found)} targets reached."


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--threads", type=int, default=1)
    add_keep(parser)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    random.seed(0)
    rows = [asdict(row) for part in given.only for row in PARTS[part]()]
    report(table(rows), rows, given.keep)


if __name__ == "__main__":
    main()
