"""The labeling server and its page on a large folder: time to start, to compute features, and from a key to a picture.

    python benchmarks/labeling.py --pictures 3000 100000

Needs chromium and chromedriver. The pictures are hard links to a few JPEG files of 1600×1200 pixels. The time from a
key to a picture is measured in the page, from the event of the key to the frame after the one with the new picture:
right after the start, while features are computed, and, in a small folder, afterwards, while a model is trained.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from label_page import LabelPage
from labeling_server import ServerProcess

from measuring import Rows, add_keep, markdown, report

FILES = 20  # with different pixels
KEYS = 40  # at a time
SMALL = 5000  # pictures whose features are waited for
# The picture is on the screen a frame after its name has changed.
INSTALL = """
const name = () => document.querySelector('#image-name').textContent;
const before = name();
window.measured = null;
addEventListener('keydown', (event) => {
  const look = () => {
    if (name() === before) requestAnimationFrame(look);
    else requestAnimationFrame(() => { window.measured = performance.now() - event.timeStamp; });
  };
  requestAnimationFrame(look);
}, {once: true, capture: true});
"""


def key_to_picture(page: LabelPage, key: str) -> float:
    """Milliseconds from a key to the next picture."""
    page.script(INSTALL)
    page.press(key)
    milliseconds = float(page.until(lambda: page.script("return window.measured"), 30))
    time.sleep(0.3)  # as long as a fast person looks at a picture
    return milliseconds


def has_all_features(page: LabelPage) -> bool:
    """Whether the page shows no progress of features any more."""
    return bool(page.script("return !document.body.textContent.includes('Features of ')"))


def make_folder(folder: Path, count: int) -> Path:
    """A folder of so many pictures."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"{number:07}.jpg"
        if number < FILES:
            colors = random.integers(0, 256, (12, 16, 3)).astype(np.uint8)
            Image.fromarray(colors).resize((1600, 1200)).save(path, quality=90)
        else:
            os.link(folder / f"{number % FILES:07}.jpg", path)
    return folder


def memory_of(server: ServerProcess) -> float:
    """The resident memory of the server in MB."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def measure(count: int) -> dict[str, Any]:
    """Seconds until the first picture and until all features, milliseconds of each key, and MB before and after."""
    with tempfile.TemporaryDirectory() as directory:
        folder = make_folder(Path(directory) / "photos", count)
        started = time.perf_counter()
        server, page = ServerProcess(folder, ("yes", "no")), LabelPage()
        try:
            page.driver.get(server.address)
            page.name()
            ready = time.perf_counter() - started
            before = memory_of(server)
            times, features = [key_to_picture(page, "12"[number % 2]) for number in range(KEYS)], None
            if count <= SMALL:
                page.until(lambda: has_all_features(page), 600)
                features = time.perf_counter() - started
                times += [key_to_picture(page, "12"[number % 2]) for number in range(KEYS)]
            after = memory_of(server)
        finally:
            page.driver.quit()
            server.stop()
    return {"pictures": count, "ready": ready, "features": features, "keys": times, "before": before, "after": after}


def table(rows: Rows) -> str:
    """A line for each number of pictures."""
    lines = [
        (
            f"{row['pictures']:,}",
            f"{row['ready']:.1f} s",
            f"{row['features']:.0f} s" if row["features"] else "–",
            f"{statistics.median(row['keys']):.0f} ms",
            f"{max(row['keys']):.0f} ms",
            f"{row['before']:.0f} → {row['after']:.0f} MB",
        )
        for row in rows
    ]
    head = (
        "images",
        "first image after",
        "all features after",
        "key to image, median",
        "largest",
        "memory of the server",
    )
    return markdown(head, lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pictures", type=int, nargs="+", default=[3000, 100_000])
    add_keep(parser)
    given = parser.parse_args()
    rows = [measure(count) for count in given.pictures]
    report(table(rows), rows, given.keep)


if __name__ == "__main__":
    main()
