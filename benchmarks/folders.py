"""The overhead of reading folders and of prediction.

Reading: JPEGs, from files to the memory-mapped cache, against plain Pillow decoding (open, RGB, array) in as many
threads. Prediction: files to a CSV table, against the bare network on images that are already in memory, and against
decoding followed by the network, because decoding runs at the same time as the network only if cores are idle.
Both sides are measured in turn in one process, and the median of the ratios is reported.

    python benchmarks/folders.py                       # 20,000 JPEGs of 64×64
    python benchmarks/folders.py --memory 10000 100000   # peak memory of reading so many, each in a separate process
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from inference import make_folder, untrained_model, write_table
from measuring import CPU
from measuring import wall_seconds as seconds
from rankingmatch.core.memory import peak_memory
from rankingmatch.data import decode_files, find_source, images_below
from rankingmatch.networks import batched_outputs


def plain(files: list[str]) -> None:
    """Decode every file to an array, on all cores."""

    def read(file: str) -> int:
        with Image.open(file) as image:
            return np.asarray(image.convert("RGB")).size

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(read, files):
            pass


def measure_reading(folder: Path, files: list[str], side: int, rounds: int) -> None:
    """Print how fast a folder is read, compared with plain decoding."""
    ratios = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["XDG_CACHE_HOME"] = cache
            bare = seconds(lambda: plain(files))
            ours = seconds(lambda: find_source(str(folder)).load(image_size=side))
        ratios.append(bare / ours)
        print(f"reading: {len(files) / ours:,.0f} images/s, plain Pillow {len(files) / bare:,.0f}", flush=True)
    print(f"reading at {100 * statistics.median(ratios):.0f} % of the speed of plain Pillow (target: 80)")


def measure_predicting(files: list[str], side: int, network: str, rounds: int) -> None:
    """Print how fast files are predicted, compared with the bare network."""
    model, shape = untrained_model(network), (side, side, 3)
    images = np.concatenate([chunk.images for chunk in decode_files(files, shape)])
    ratios, sums = [], []
    for _ in range(rounds):
        decoding = seconds(lambda: list(decode_files(files, shape)))
        bare = seconds(lambda: [output.logits.argmax(1) for output in batched_outputs(model, images, CPU, size=64)])
        ours = seconds(lambda: write_table(model, files, network, side))
        ratios.append(bare / ours)
        sums.append((bare + decoding) / ours)
        print(f"prediction: {len(files) / ours:,.0f} images/s, bare network {len(files) / bare:,.0f}", flush=True)
    speed = f"{100 * statistics.median(ratios):.0f} % of the speed of the bare network"
    print(f"prediction with {network} at {speed} (target: 90)")
    print(f"    and at {100 * statistics.median(sums):.0f} % of the speed of decoding followed by the network")


def measure_memory(counts: list[int], side: int) -> None:
    """Print the peak memory of reading folders with these numbers of images."""
    for count in counts:
        with tempfile.TemporaryDirectory() as directory:
            make_folder(Path(directory) / "photos", count, side)
            environment = {**os.environ, "XDG_CACHE_HOME": f"{directory}/cache"}
            command = [sys.executable, __file__, "--read", f"{directory}/photos"]
            subprocess.run(command, env=environment, check=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument(
        "--read-at", type=int, help="side to which images are resized when they are read; by default --side"
    )
    parser.add_argument("--network", default="wrn-28-2")
    parser.add_argument("--predicted", type=int, default=1024, help="number of images to predict")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="threads of the network")
    parser.add_argument("--memory", type=int, nargs="+", default=[])
    parser.add_argument("--read", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    if given.read:
        images = len(find_source(given.read).load().train)
        print(f"reading {images:,} images: peak memory {peak_memory(CPU) / 2**20:,.0f} MiB", flush=True)
    elif given.memory:
        measure_memory(given.memory, given.side)
    else:
        with tempfile.TemporaryDirectory() as directory:
            make_folder(Path(directory), given.count, given.side)
            files = [str(file) for file in images_below(Path(directory))]
            measure_reading(Path(directory), files, given.read_at or given.side, given.rounds)
            measure_predicting(files[: given.predicted], given.side, given.network, given.rounds)


if __name__ == "__main__":
    main()
