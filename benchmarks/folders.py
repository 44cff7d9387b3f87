"""The overhead of reading folders and of prediction.

Reading: JPEGs, from files to the memory-mapped cache, against plain Pillow decoding (open, RGB, array) in as many
threads. Prediction: files to a CSV table, against the bare network on images that are already in memory, and against
decoding followed by the network, because decoding runs at the same time as the network only if cores are idle.
Both sides are measured in turn in one process, and the median of the ratios is reported.

    python benchmarks/folders.py                         # 20,000 JPEGs of 64×64, read as they are and at 32×32
    python benchmarks/folders.py --memory 10000 100000   # also the peak memory of reading so many, in other processes
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from inference import make_folder, untrained_model, write_table
from measuring import CPU, MEBI, Rows, add_keep, markdown, report
from measuring import wall_seconds as seconds
from rankingmatch.core.devices import peak_memory
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


def measure_reading(folder: Path, files: list[str], side: int, rounds: int) -> dict[str, Any]:
    """How fast a folder is read, compared with plain decoding."""
    ratios = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["XDG_CACHE_HOME"] = cache
            bare = seconds(lambda: plain(files))
            ours = seconds(lambda: find_source(str(folder)).load(image_size=side))
        ratios.append(bare / ours)
        print(f"reading: {len(files) / ours:,.0f} images/s, plain Pillow {len(files) / bare:,.0f}", file=sys.stderr)
    return {"measure": f"reading at {side}×{side}, against plain Pillow", "images": len(files), "ratios": ratios}


def measure_predicting(files: list[str], side: int, network: str, rounds: int) -> Rows:
    """How fast files are predicted, compared with the bare network, and with decoding followed by it."""
    model, shape = untrained_model(network), (side, side, 3)
    images = np.concatenate([chunk.images for chunk in decode_files(files, shape)])
    ratios, sums = [], []
    for _ in range(rounds):
        decoding = seconds(lambda: list(decode_files(files, shape)))
        bare = seconds(lambda: [output.logits.argmax(1) for output in batched_outputs(model, images, CPU, size=64)])
        ours = seconds(lambda: write_table(model, files, network, side))
        ratios.append(bare / ours)
        sums.append((bare + decoding) / ours)
        print(f"prediction: {len(files) / ours:,.0f} images/s, bare network {len(files) / bare:,.0f}", file=sys.stderr)
    what = f"prediction with `{network}`, against"
    return [
        {"measure": f"{what} the bare network", "images": len(files), "ratios": ratios},
        {"measure": f"{what} decoding followed by the network", "images": len(files), "ratios": sums},
    ]


def measure_memory(count: int, side: int) -> dict[str, Any]:
    """The peak memory of a process that reads a folder with this number of images."""
    with tempfile.TemporaryDirectory() as directory:
        make_folder(Path(directory) / "photos", count, side)
        environment = {**os.environ, "XDG_CACHE_HOME": f"{directory}/cache"}
        command = [sys.executable, __file__, "--read", f"{directory}/photos"]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return {"measure": "reading, peak memory", "images": count, "bytes": int(done.stdout)}


def table(rows: Rows) -> str:
    """A line for each measure: the median of the rounds and their range, or memory."""
    return markdown(
        ("measure", "images", "measured"), [(row["measure"], f"{row['images']:,}", cell(row)) for row in rows]
    )


def cell(row: dict[str, Any]) -> str:
    """Speed in percent of what it is compared with, or memory."""
    if "bytes" in row:
        return f"{row['bytes'] / MEBI:,.0f} MiB"
    percent = [100 * ratio for ratio in row["ratios"]]
    return f"{statistics.median(percent):.0f}% of the speed ({min(percent):.0f} to {max(percent):.0f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--read-at", type=int, nargs="+", default=[64, 32], help="sides at which images are read")
    parser.add_argument("--network", default="wrn-28-2")
    parser.add_argument("--predicted", type=int, default=1024, help="number of images to predict")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="threads of the network")
    parser.add_argument("--memory", type=int, nargs="+", default=[])
    add_keep(parser)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    if given.read:
        find_source(given.read).load()
        print(peak_memory(CPU))
        return
    with tempfile.TemporaryDirectory() as directory:
        make_folder(Path(directory), given.count, given.side)
        files = [str(file) for file in images_below(Path(directory))]
        rows: Rows = [measure_reading(Path(directory), files, side, given.rounds) for side in given.read_at]
        rows += measure_predicting(files[: given.predicted], given.side, given.network, given.rounds)
    rows += [measure_memory(count, given.side) for count in given.memory]
    report(table(rows), rows, given.keep)


if __name__ == "__main__":
    main()
