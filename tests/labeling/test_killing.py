"""The command in a process of its own: killed at any instant, interrupted, started for a trained run."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from image_folders import class_folders
from labeling_server import ServerProcess, colored_images

pytestmark = pytest.mark.slow
CLASSES = ("red", "green", "blue")
Start = Callable[..., tuple[ServerProcess, httpx.Client]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `rankingmatch label`, by default for 200 images; the result is the server and a client with the token."""
    started: list[tuple[ServerProcess, httpx.Client]] = []

    def start_one(folder: Path | None = None) -> tuple[ServerProcess, httpx.Client]:
        server = ServerProcess(folder or colored_images(tmp_path / "photos", 200), () if folder else CLASSES)
        origin = f"http://{urlsplit(server.address).netloc}"
        client = httpx.Client(base_url=origin, headers={"Origin": origin}, follow_redirects=True, timeout=20)
        started.append((server, client))
        client.get(server.address)
        return server, client

    yield start_one
    for server, client in started:
        client.close()
        server.stop()


def label(client: httpx.Client, number: int) -> None:
    """Label an image correctly."""
    client.post("/label", json={"client": "me", "number": number, "class": number % 3}).raise_for_status()


def test_every_label_that_was_answered_survives_kills(start: Start) -> None:
    rng = random.Random(0)
    expected: dict[str, str] = {}
    for _ in range(3):
        server, client = start()
        assert client.get("/state").json()["labeled"] == len(expected)
        for _ in range(rng.randint(3, 12)):
            number = len(expected)
            label(client, number)
            expected[f"{number:03d}.png"] = CLASSES[number % 3]
        server.kill()
        assert server.labels() == expected
        with (server.folder / "labels.csv").open("ab") as file:  # what a kill in the middle of a write leaves
            file.write(b"199.png,re")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_server_says_where_the_labels_are_and_how_to_train(start: Start, number: int) -> None:
    server, client = start()
    label(client, 0)
    with client.stream("GET", "/events") as events:  # an open stream does not keep the server alive
        assert next(events.iter_lines()) == "event: state"
        printed = server.stop(number)
    assert server.process.returncode == 0, printed
    assert f"1 labels are in {server.folder / 'labels.csv'}" in printed
    assert f"rankingmatch train {server.folder} --labels-csv {server.folder / 'labels.csv'}" in printed
    assert "Traceback" not in printed


def test_a_run_of_class_folders_is_labeled_with_its_classes_and_its_model(tmp_path: Path, start: Start) -> None:
    photos, run = class_folders(tmp_path / "photos", each=4), tmp_path / "run"
    colored_images(photos / "unlabeled", 6)
    train = ["train", str(photos), "--out", str(run), "--steps", "2", "--threads", "1", "--network", "wrn-10-1"]
    subprocess.run([sys.executable, "-m", "rankingmatch", *train, "--no-report", "--quiet"], check=True, timeout=200)
    (photos / "unlabeled").rename(tmp_path / "elsewhere")  # now every image is in a class folder, as in an album
    _, client = start(run)
    end = time.monotonic() + 100
    while (state := client.get("/state").json())["model"]["state"] != "ready" and time.monotonic() < end:
        time.sleep(0.2)
    assert state["model"]["state"] == "ready"
    assert state["failure"] is None
    assert sorted(one["name"] for one in state["classes"]) == sorted(CLASSES)
    assert state["labeled"] == 12
