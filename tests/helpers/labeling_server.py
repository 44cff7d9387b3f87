"""Labeling servers for tests: the application without a network, the server in a thread, and the command."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from image_folders import COLORS, picture
from starlette.testclient import TestClient

from rankingmatch.labeling.folder import open_session
from rankingmatch.labeling.processes import Training
from rankingmatch.labeling.security import Access
from rankingmatch.labeling.server import listen, make_app, make_server
from rankingmatch.labeling.session import Session

ACCESS = Access("secret-token", 8765)
ADDRESS = f"http://127.0.0.1:{ACCESS.port}"


def colored_images(folder: Path, count: int = 30, size: tuple[int, int] = (24, 20)) -> Path:
    """Unlabeled images in one folder; those of the same color have numbers that are equal modulo 3."""
    for number in range(count):
        picture(folder / f"{number:03d}.png", list(COLORS.values())[number % len(COLORS)], size)
    return folder


def stranger(page: "Page", address: str = ADDRESS) -> TestClient:
    """A client without the token."""
    return TestClient(page.client.app, address, raise_server_exceptions=False)


class Page:
    """What the page does: a client with the token, which posts JSON."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.training = Training(session, session.root.parent / "runs")
        self.client = TestClient(make_app(session, self.training, ACCESS), ADDRESS, raise_server_exceptions=False)
        self.client.get("/", params={"token": ACCESS.token}, follow_redirects=False)

    def get(self, path: str, **parameters: Any) -> Any:
        response = self.client.get(path, params=parameters)
        assert response.status_code == 200, response.text
        return response.json()

    def next(self, count: int = 8, client: str = "me", **parameters: Any) -> Any:
        return self.get("/next", client=client, count=count, **parameters)["images"]

    def post(self, path: str, status: int = 200, **body: Any) -> Any:
        response = self.client.post(path, json=body, headers={"Origin": ADDRESS})
        assert response.status_code == status, response.text
        return response.json()

    def label(self, number: int, choice: int | str | None, status: int = 200, origin: str = "hand") -> Any:
        return self.post("/label", status, client="me", number=number, origin=origin, **{"class": choice})

    @property
    def state(self) -> Any:
        return self.get("/state")

    def rows(self) -> list[list[str]]:
        """The rows of the journal, without their times."""
        lines = self.session.journal.path.read_text().splitlines()[1:]
        return [[field for at, field in enumerate(line.split(",")) if at != 3] for line in lines]


class LabelServer:
    """A labeling server and its journal."""

    def __init__(self, folder: Path, classes: tuple[str, ...] = ()) -> None:
        with listen("127.0.0.1", 0) as free:
            self.port = free.getsockname()[1]
        self.folder, self.classes = folder, classes
        self.address = self.start()

    def start(self) -> str:
        """Start the server, on the same port if it is started again, and return the address to open."""
        raise NotImplementedError

    def stop(self) -> object:
        """End it as Ctrl-C does."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, str]]:
        with (self.folder / "labels.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def labels(self) -> dict[str, str]:
        """The label of each file, by the last row of the file."""
        labels = {row["file"]: row["label"] for row in self.rows() if row["file"]}
        return {file: label for file, label in labels.items() if label}


class ServerThread(LabelServer):
    """A server in this process, without a model: it starts at once."""

    def start(self) -> str:
        self.session = open_session(self.folder, classes=self.classes)
        access = Access("secret", self.port)
        self.server = make_server(self.session, Training(self.session), access)
        sockets = [listen("127.0.0.1", self.port)]
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": sockets})
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            time.sleep(0.01)
        return f"http://127.0.0.1:{self.port}/?token={access.token}"

    def stop(self) -> None:
        self.server.should_exit = self.server.force_exit = True
        self.thread.join()
        self.session.journal.close()


class ServerProcess(LabelServer):
    """`rankingmatch label` as a process, with a model."""

    def start(self) -> str:
        command = [sys.executable, "-m", "rankingmatch", "label", str(self.folder), "--no-browser"]
        command += ["--port", str(self.port), "--classes", ",".join(self.classes)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=self.folder.parent,
        )
        assert self.process.stdout is not None
        printed = []
        for line in self.process.stdout:
            printed.append(line)
            if line.startswith("open "):
                return line.removeprefix("open ").strip()
        raise AssertionError(f"the server did not start: {''.join(printed)}")

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def stop(self, number: int = signal.SIGINT) -> str:
        """End it with a signal; what it has printed since the address."""
        if self.process.stdout is None or self.process.stdout.closed:
            return ""
        self.process.send_signal(number)
        return str(self.process.communicate(timeout=60)[0])
