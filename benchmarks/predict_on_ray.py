"""`predict --on ray` of many files while its workers are killed twice, compared with one process.

    python benchmarks/predict_on_ray.py

Small images, of which one in a thousand is damaged, are written to a temporary directory, and a small network is
trained for a few steps. After a third and after two thirds of the rows, all workers that predict are killed. Ray's
workers get the priority of other programs (RAY_worker_niceness=0); Ray would lower it.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from measuring import Rows, add_keep, markdown, report

QUICK = ["--steps", "20", "--batch-size", "8", "--mu", "1", "--threads", "1", "--no-report", "--quiet"]
DAMAGED = 1000  # one in so many files
FRACTIONS = (1 / 3, 2 / 3)  # of the rows, after which workers are killed
ENVIRONMENT = {**os.environ, "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}


def make_files(folder: Path, count: int) -> None:
    """Images of 8×8 pixels, each different, 1,000 to a folder."""
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"{number // 1000:04d}" / f"{number:07d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number % DAMAGED == DAMAGED - 1:
            path.write_bytes(b"damaged")
        else:
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)


def start(place: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    """A command of rankingmatch."""
    command = [sys.executable, "-P", "-m", "rankingmatch", *arguments]
    return subprocess.Popen(command, cwd=place, env=ENVIRONMENT, stderr=subprocess.DEVNULL)


def predict(place: Path, table: str, *flags: str, kill_at: tuple[float, ...] = ()) -> tuple[float, list[int]]:
    """Predict all files into a table; the seconds, and how many workers were killed at each of some sizes of it."""
    started, killed = time.perf_counter(), []
    process = start(place, "predict", "run", "images", "--probabilities", "--out", f"{table}/table.csv", *flags)
    for size in kill_at:
        killed.append(0)
        while process.poll() is None and not killed[-1]:
            time.sleep(0.01)
            killed[-1] = kill_workers(process.pid) if written(place / table) >= size else 0
    if process.wait() != 0:
        raise SystemExit(f"predict {' '.join(flags)} failed")
    return time.perf_counter() - started, killed


def written(folder: Path) -> int:
    """The bytes of the table so far, which has another name until it is complete."""
    return sum(path.stat().st_size for path in folder.iterdir())


def kill_workers(driver: int) -> int:
    """Kill the workers of a driver that predict at this moment; how many there were."""
    killed = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cmdline").read_bytes().startswith(b"ray::_predict") and driver in ancestors(int(path.name)):
                os.kill(int(path.name), signal.SIGKILL)
                killed += 1
        except (OSError, ValueError):  # it has ended meanwhile
            continue
    return killed


def ancestors(process: int) -> set[int]:
    """The processes above a process."""
    found: set[int] = set()
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
        found.add(process)
    return found


def measure(count: int) -> dict[str, Any]:
    """Seconds of one process and on Ray, workers killed, and whether the rows are the same."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        make_files(place / "images", count)
        if start(place, "train", "digits", *QUICK, "--out", "run").wait() != 0:
            raise SystemExit("train failed")
        for name in ("one", "ray"):
            (place / name).mkdir()
        seconds, _ = predict(place, "one")
        expected = (place / "one/table.csv").read_bytes()
        sizes = tuple(fraction * len(expected) for fraction in FRACTIONS)
        on_ray, killed = predict(place, "ray", "--on", "ray", kill_at=sizes)
        found = (place / "ray/table.csv").read_bytes()
    names = [line.partition(b",")[0] for line in found.splitlines()[1:]]
    same, twice = found == expected, len(set(names)) < len(names)
    times = {"one_process": seconds, "on_ray": on_ray}
    return {"files": count, "rows": len(names), **times, "killed": killed, "same": same, "twice": twice}


def table(rows: Rows) -> str:
    """A line for each number of files."""
    lines = [
        (
            f"{row['files']:,}",
            f"{row['rows']:,}",
            f"{row['one_process']:.0f} s",
            f"{row['on_ray']:.0f} s",
            " and ".join(map(str, row["killed"])),
            "yes" if row["same"] else "NO",
            "YES" if row["twice"] else "no",
        )
        for row in rows
    ]
    return markdown(("files", "rows", "one process", "on Ray", "workers killed", "same bytes", "a file twice"), lines)


def main() -> None:
    """Measure, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="number of files")
    add_keep(parser)
    given = parser.parse_args()
    rows = [measure(given.count)]
    report(table(rows), rows, given.keep)
    raise SystemExit(not rows[0]["same"])


if __name__ == "__main__":
    main()
