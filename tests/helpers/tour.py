"""The README with an installed package: folder → label → train → evaluate → predict → export, then the Python block.

    dist/empty/bin/python tests/helpers/tour.py

It needs nothing but the package with its extra `label`. The truth answers on the labeling page, and training is short.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import requests
from PIL import Image, ImageDraw

README = Path(__file__).parents[2] / "README.md"
COLORS = {"disk": (200, 40, 40), "square": (40, 60, 200)}
LABELS = 30


def main() -> None:
    """Go through all of it, and say how long each step took."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        make_photographs(place / "photos", 60)
        make_photographs(place / "new-photos", 6)
        timed("label", label, place, list(COLORS), LABELS, lambda name: name.partition("-")[0])
        for command in commands():
            timed(command[0], run, place, *command)
        timed("Python", run_python, place)
        predicted = (place / "predictions.csv").read_text().splitlines()
        assert len(predicted) == 7, predicted
        assert (place / "model.onnx").stat().st_size > 10**6


def timed(name: str, step: Callable[..., None], *arguments: object) -> float:
    """Take a step, and return the seconds it took."""
    started = time.monotonic()
    step(*arguments)
    seconds = time.monotonic() - started
    print(f"{name}: {seconds:.0f} s", flush=True)
    return seconds


def make_photographs(folder: Path, count: int) -> Path:
    """Photographs of two kinds of objects, named after their kind."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number in range(count):
        kind = list(COLORS)[number % 2]
        image = Image.fromarray(random.normal(200, 20, (96, 128, 3)).clip(0, 255).astype(np.uint8))
        left, top, side = (int(value) for value in random.integers((5, 5, 30), (60, 40, 50)))
        draw = ImageDraw.Draw(image)
        shape = draw.ellipse if kind == "disk" else draw.rectangle
        shape((left, top, left + side, top + side), fill=COLORS[kind])
        image.save(folder / f"{kind}-{number:03}.jpg")
    return folder


def commands(*, steps: int | None = 4) -> list[list[str]]:
    """The README's commands after labeling; training is as short as this, unless it is None."""
    found = re.findall(r"^rankingmatch ((?:train|predict|export|evaluate) [^#\n]*)", README.read_text(), re.MULTILINE)
    split = [command.split() for command in found]
    wanted = [
        words for words in split if "photos" in " ".join(words) and (words[0] != "train" or "--labels-csv" in words)
    ]
    length = [] if steps is None else ["--steps", str(steps)]
    return [[*words, *length] if words[0] == "train" else words for words in wanted]


def run(place: Path, *arguments: str) -> None:
    """A command that must succeed."""
    subprocess.run([sys.executable, "-m", "rankingmatch", *arguments], cwd=place, check=True, stdout=subprocess.DEVNULL)


def label(place: Path, classes: Sequence[str], count: int, class_of: Callable[[str], str], pause: float = 0.0) -> None:
    """Label photographs by the truth, as the page does, and stop the server.

    `class_of` gives the class of a picture's name, after a pause in seconds.
    """
    command = [sys.executable, "-m", "rankingmatch", "label", "photos", "--no-browser", "--port", "0"]
    server = subprocess.Popen([*command, "--classes", ",".join(classes)], cwd=place, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = next(line.split()[1] for line in server.stdout if line.startswith("open "))
    origin = f"http://{urlsplit(address).netloc}"
    with requests.Session() as page:
        page.get(address, timeout=30).raise_for_status()
        ids = {one["name"]: one["id"] for one in page.get(f"{origin}/state", timeout=30).json()["classes"]}
        for _ in range(count):
            asked = page.get(f"{origin}/next", params={"client": "tour", "count": "1"}, timeout=30).json()
            given = asked["images"][0]
            time.sleep(pause)
            choice = ids[class_of(given["name"])]
            body = {"client": "tour", "number": given["number"], "origin": "hand", "class": choice}
            page.post(f"{origin}/label", json=body, headers={"Origin": origin}, timeout=30).raise_for_status()
    server.send_signal(signal.SIGINT)
    code = server.wait(30)
    assert code == 0, code


def run_python(place: Path) -> None:
    """The README's Python."""
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as fast on such small images, also on a busy machine
    subprocess.run([sys.executable, "-c", block], cwd=place, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
