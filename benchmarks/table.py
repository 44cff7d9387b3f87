"""Everything except the network should cost almost nothing: one table of targets and measurements.

make bench                                                  # prints it; takes minutes
python benchmarks/table.py --only ranking                   # a part of it
python benchmarks/table.py --markdown docs/performance.md   # writes it into the page, between its markers
"""

import argparse
import os
import platform
import random
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch

import augmentation
import inference
import photographs
import ranking
import steps
from measuring import Row, markdown

PARTS: dict[str, Callable[[], list[Row]]] = {
    "augmentation": augmentation.rows,
    "ranking": ranking.rows,
    "steps": steps.rows,
    "inference": inference.rows,
    "photographs": photographs.rows,
}
HEADER = ("measure", "target", "measured (ours, theirs)", "verdict")
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def machine() -> str:
    """The date and the machine."""
    cores = len(os.sched_getaffinity(0))
    return (
        f"{date.today().isoformat()}, {platform.machine()} with {cores} CPU cores, {torch.get_num_threads()} thread, "
        f"torch {torch.__version__}, load {os.getloadavg()[1]:.1f}"
    )


def insert_table(page: str, text: str) -> str:
    """The page with the text between its markers."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{rest[rest.index(END) :]}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", type=Path, help="page whose table is replaced")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    random.seed(0)
    rows = [row for part in given.only for row in PARTS[part]()]
    reached = sum(row.reached for row in rows)
    table = markdown(HEADER, [row.cells() for row in rows])
    text = f"{table}\n\n{reached} of {len(rows)} targets reached: {machine()}."
    print(text)
    if given.markdown:
        given.markdown.write_text(insert_table(given.markdown.read_text(), text))


if __name__ == "__main__":
    main()
