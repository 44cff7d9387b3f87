"""The time to compute the bank of a folder of photographs: the frozen part of the network for a few views of each.

    python benchmarks/bank.py data/clothing

Images are decoded before. The bank is computed on all cores, or on OMP_NUM_THREADS, into a temporary directory.
"""

import argparse
import os
import tempfile
import time

import torch

from measuring import CPU, Rows, add_keep, markdown, report
from rankingmatch.methods import make_method
from rankingmatch.runs.config import resolve
from rankingmatch.runs.job import load_split
from rankingmatch.training.banks import make_bank
from rankingmatch.training.state import initial_state


def table(rows: Rows) -> str:
    """A line for each bank."""
    lines = [
        (
            f"{row['images']:,}",
            str(row["views"]),
            f"{row['side']}×{row['side']}",
            str(row["threads"]),
            f"{row['seconds'] / 60:.1f} minutes",
            f"{1000 * row['seconds'] / row['views'] / row['images']:.1f} ms",
        )
        for row in rows
    ]
    return markdown(("images", "views of each", "pixels", "threads", "the bank", "one view"), lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    add_keep(parser)
    given = parser.parse_args()
    # The default for photographs, and more views of smaller images.
    rows = [measured(given.folder), measured(given.folder, image_size=128, bank_views=6)]
    report(table(rows), rows, given.keep)


def measured(folder: str, **settings: int) -> dict[str, float]:
    """Compute a bank, and time it."""
    plan = resolve(folder, "softmatch", {"labels": 40, **settings})
    config, split = plan.config, load_split(plan)
    state = initial_state(split, make_method("softmatch"), config.network, config.views, config.training, CPU)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_CACHE_HOME"] = directory
        started = time.perf_counter()
        make_bank(state, split, config.views)
        seconds = time.perf_counter() - started
        del os.environ["XDG_CACHE_HOME"]
    return {
        "images": len(split.images),
        "views": 2 * config.views.bank_views,
        "side": split.images.shape[1],
        "threads": torch.get_num_threads(),
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
