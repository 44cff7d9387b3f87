"""The command in a process of its own: killed at any instant, interrupted, started twice, closed to strangers."""

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from labeling_server import colored_pictures

from rankingmatch.data.label_journal import parse_events, replay

pytestmark = pytest.mark.slow


class Server:
    """`rankingmatch label` on a port of its own."""

    def __init__(self, folder: Path, *more: str) -> None:
        command = [sys.executable, "-m", "rankingmatch", "label", str(folder), "--no-browser", "--port", "0", *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        self.printed = ""
        for line in self.process.stdout:
            self.printed += line
            if line.startswith("Ctrl-C"):
                break
        found = re.search(r"open (http://127\.0\.0\.1:\d+)/\?token=(\S+)", self.printed)
        assert found, self.printed
        self.client = httpx.Client(base_url=found[1], headers={"Origin": found[1]}, follow_redirects=True, timeout=20)
        self.client.get("/", params={"token": found[2]})

    def label(self, number: int, choice: int) -> bool:
        """Label a picture; False if there is no answer."""
        try:
            body = {"client": "me", "number": number, "class": choice}
            return self.client.post("/label", json=body).status_code == 200
        except httpx.TransportError:
            return False

    def end(self, number: int) -> str:
        """Send a signal; returns what the command printed afterwards."""
        self.process.send_signal(number)
        printed = str(self.process.communicate(timeout=60)[0])
        self.client.close()
        return printed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return colored_pictures(tmp_path / "photos", 200)


def test_every_label_that_was_answered_survives_kills(folder: Path) -> None:
    rng = random.Random(0)
    expected: dict[str, str] = {}
    number = 0
    for _ in range(3):
        server = Server(folder, "--classes", "red,green,blue")
        assert server.client.get("/state").json()["labeled"] == len(expected)
        for _ in range(rng.randint(3, 12)):
            assert server.label(number, number % 3)
            expected[f"{number:03d}.png"] = ["red", "green", "blue"][number % 3]
            number += 1
        server.end(signal.SIGKILL)
        path = folder / "labels.csv"
        found = replay(parse_events(path.read_bytes(), path)[0])
        assert {file: label for file, (label, _) in found.items()} == expected
        with path.open("ab") as file:  # what a kill in the middle of a write leaves
            file.write(b"199.png,re")


def test_an_interrupted_server_says_where_the_labels_are_and_how_to_train(folder: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        server = Server(folder, "--classes", "red,green,blue")
        server.label(0, 0)
        time.sleep(0.5)
        printed = server.end(number)
        assert server.process.returncode == 0, printed
        assert f"1 labels are in {folder / 'labels.csv'}" in printed
        assert f"rankingmatch train {folder} --labels-csv {folder / 'labels.csv'}" in printed
        assert "Traceback" not in printed


def test_a_second_server_is_refused_in_one_line(folder: Path) -> None:
    server = Server(folder)
    command = [sys.executable, "-m", "rankingmatch", "label", str(folder), "--no-browser", "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert second.returncode == 2
    assert re.fullmatch(r"error: .*labels\.csv is in use by another labeling server; .*\n", second.stderr)
    server.end(signal.SIGINT)


def test_the_page_of_the_real_server_needs_the_token(folder: Path) -> None:
    server = Server(folder)
    assert server.client.get("/").status_code == 200
    assert httpx.get(server.client.base_url).status_code == 403
    with server.client.stream("GET", "/events") as events:
        assert next(events.iter_lines()) == "event: state"
        server.process.send_signal(signal.SIGINT)  # an open stream does not keep the server alive
        assert server.process.wait(60) == 0
    server.client.close()
    server.process.communicate()
