"""The time to list a shard, which happens at each start: a tar of images, each with a label.

    python benchmarks/shards.py

The tar is written to a temporary directory; its images have 700 bytes, because listing skips them.
"""

import argparse
import io
import tarfile
import tempfile
import time
from pathlib import Path

from rankingmatch.data.shards import read_shard


def write(path: Path, count: int) -> None:
    """A tar of `count` samples that look like images by their names."""
    with tarfile.open(path, "w") as shard:
        for number in range(count):
            for ending, content in (("jpg", bytes(700)), ("cls", b"3")):
                info = tarfile.TarInfo(f"{number:08d}.{ending}")
                info.size = len(content)
                shard.addfile(info, io.BytesIO(content))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="number of images")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "x.tar"
        write(path, given.count)
        for labels in (False, True):
            seconds = []
            for _ in range(given.rounds):
                started = time.perf_counter()
                assert sum(1 for _ in read_shard(path, labels=labels)) == given.count
                seconds.append(1e6 * (time.perf_counter() - started) / given.count)
            name = "with labels" if labels else "without labels"
            print(f"listing, {name}: {min(seconds):.0f} to {max(seconds):.0f} seconds for a million images")


if __name__ == "__main__":
    main()
