"""The time to compute the bank of a folder of photographs: the frozen part of the network for 12 views of each.

    python benchmarks/bank.py data/clothing

Images are decoded before. The bank is computed on all cores, or on OMP_NUM_THREADS, into a temporary directory.
"""

import argparse
import os
import tempfile
import time

import torch

from measuring import CPU
from rankingmatch.methods import make_method
from rankingmatch.runs.config import resolve
from rankingmatch.runs.job import load_split
from rankingmatch.training.banks import make_bank
from rankingmatch.training.state import initial_state

SETTINGS = {"network": "efficientnet-lite0", "pretrained": True, "tune": "top", "image_size": 128, "bank_views": 6}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    plan = resolve(parser.parse_args().folder, "softmatch", {**SETTINGS, "labels": 40})
    config, split = plan.config, load_split(plan)
    state = initial_state(split, make_method("softmatch"), config.network, config.views, config.training, CPU)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_CACHE_HOME"] = directory
        started = time.perf_counter()
        make_bank(state, split, config.views)
        seconds = time.perf_counter() - started
    views = 2 * config.views.bank_views
    each = 1000 * seconds / views / len(split.images)
    print(
        f"{views} views of {len(split.images):,} images, {SETTINGS['image_size']}×{SETTINGS['image_size']}: "
        f"{seconds / 60:.2f} minutes, {each:.2f} ms per view, {torch.get_num_threads()} threads, load "
        f"{os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
