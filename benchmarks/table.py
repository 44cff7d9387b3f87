"""Everything that is not the network should be nearly free: one table of what is wanted and what is measured.

make bench                                              # prints it; some minutes
python benchmarks/table.py --only ranking               # some of it
python benchmarks/table.py --markdown docs/performance.md   # puts it into the page, between its marks
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
import ranking
import steps
from measuring import Row, markdown

PARTS: dict[str, Callable[[], list[Row]]] = {
    "augmentation": augmentation.rows,
    "ranking": ranking.rows,
    "steps": steps.rows,
    "inference": inference.rows,
}
HEADER = ("measure", "reach", "measured (ours, theirs)", "verdict")
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def machine() -> str:
    """Where and when."""
    cores = len(os.sched_getaffinity(0))
    return (
        f"{date.today().isoformat()}, {platform.machine()} with {cores} CPU cores, {torch.get_num_threads()} thread, "
        f"torch {torch.__version__}, load {os.getloadavg()[1]:.1f}"
    )


def put_between(page: str, text: str) -> str:
    """The page with the text between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{rest[rest.index(END) :]}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", type=Path, help="the page whose table is renewed")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    random.seed(0)
    rows = [row for part in given.only for row in PARTS[part]()]
    reached = sum(row.reached for row in rows)
    text = f"{markdown(HEADER, [row.cells() for row in rows])}\n\n{reached} of {len(rows)} reached: {machine()}."
    print(text)
    if given.markdown:
        given.markdown.write_text(put_between(given.markdown.read_text(), text))


if __name__ == "__main__":
    main()
