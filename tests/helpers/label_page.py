"""The labeling page for tests: a folder of pictures, the real server as a process, and chromium."""

import csv
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import uvicorn
from PIL import Image, ImageDraw
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from rankingmatch.labeling.folder import open_session
from rankingmatch.labeling.security import Access
from rankingmatch.labeling.server import make_app
from rankingmatch.labeling.training import Training

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
NO_BROWSER = "no chromium and chromedriver: apt-get install chromium chromium-driver"
KINDS = {"disk": (200, 40, 40), "square": (40, 60, 200)}
Result = TypeVar("Result")


def make_pictures(folder: Path, count: int = 60) -> Path:
    """A flat folder of red disks and blue squares, named after their class."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number in range(count):
        kind = list(KINDS)[number % len(KINDS)]
        background = np.clip(random.normal(215, 12, (120, 160, 3)), 0, 255).astype(np.uint8)
        image = Image.fromarray(background)
        left, top, side = (int(value) for value in random.integers((10, 10, 40), (80, 40, 70)))
        draw = ImageDraw.Draw(image)
        shape = draw.ellipse if kind == "disk" else draw.rectangle
        shape((left, top, left + side, top + side), fill=KINDS[kind])
        image.save(folder / f"{kind}-{number:03}.jpg")
    return folder


class LabelServer:
    """A labeling server and its journal."""

    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.classes = folder, classes
        self.address = self.start()

    def start(self) -> str:
        """Start the server, on the same port if it is started again, and return the address to open."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, str]]:
        """The rows of the journal."""
        with (self.folder / "labels.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def labels(self) -> dict[str, str]:
        """The label of each file, by the last row of the file."""
        labels = {row["file"]: row["label"] for row in self.rows() if row["file"]}
        return {file: label for file, label in labels.items() if label}


class ServerThread(LabelServer):
    """A server in this process, without a model: it starts at once."""

    def start(self) -> str:
        """Start the thread."""
        self.session = open_session(self.folder, classes=self.classes)
        access = Access("secret", self.port)
        app: Any = make_app(self.session, Training(self.session), access, lambda: self.server.should_exit)
        config = uvicorn.Config(app, port=self.port, log_level="warning", lifespan="off", ws="none")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            time.sleep(0.01)
        return f"http://127.0.0.1:{self.port}/?token={access.token}"

    def stop(self) -> None:
        """End the thread."""
        self.server.should_exit = self.server.force_exit = True
        self.thread.join()
        self.session.journal.close()


class ServerProcess(LabelServer):
    """`rankingmatch label` as a process, with a model."""

    def start(self) -> str:
        """Start the process and return the address that it prints."""
        command = [sys.executable, "-m", "rankingmatch", "label", str(self.folder), "--no-browser"]
        command += ["--port", str(self.port), "--classes", ",".join(self.classes)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        directory = self.folder.parent
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=directory)
        assert self.process.stdout is not None
        printed = []
        for line in self.process.stdout:
            printed.append(line)
            if line.startswith("open "):
                return line.removeprefix("open ").strip()
        raise AssertionError(f"the server did not start: {''.join(printed)}")

    def kill(self) -> None:
        """End it as a power failure would."""
        self.process.send_signal(signal.SIGKILL)
        self._ended()

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self._ended()

    def _ended(self) -> None:
        self.process.wait(20)
        if self.process.stdout is not None:
            self.process.stdout.close()


class LabelPage:
    """The page in chromium."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1280,900"):
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options, Service(DRIVER))

    def open(self, address: str) -> None:
        """Open the address in this tab, and forget earlier errors."""
        self.driver.get(address)
        self.until(lambda: self.script("return document.querySelector('main > section:not([hidden])') !== null"))
        self.errors()

    def until(self, question: Callable[[], Result], seconds: float = 15) -> Result:
        """Ask until the answer is true."""
        deadline = time.monotonic() + seconds
        while not (answer := question()):
            shown = self.script("return document.body.innerText") if time.monotonic() > deadline else ""
            assert time.monotonic() <= deadline, f"it did not become true; the page shows: {shown}"
            time.sleep(0.02)
        return answer

    def one(self, selector: str) -> WebElement:
        """The element."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """All elements."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """The text of an element, as it is in the page."""
        return str(self.script("return document.querySelector(arguments[0]).textContent", selector))

    def script(self, source: str, *arguments: Any) -> Any:
        """Run a script."""
        return self.driver.execute_script(source, *arguments)

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def errors(self) -> list[str]:
        """Errors and warnings of the page since the last call, including violations of its security policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def emulate(self, command: str, **values: Any) -> None:
        """Let chromium pretend to be another device."""
        self.driver.execute_cdp_cmd(command, values)

    # --- one picture at a time ---

    def name(self) -> str:
        """The name of the picture, once it is shown."""
        self.until(lambda: self.all("#label-frame img") and self.text("#image-name"))
        return self.text("#image-name")

    def key_of(self, name: str) -> str:
        """The key of the class that the name of a picture begins with."""
        kind = name.split("-")[0]
        return next(key.lower() for known, key, _ in self.classes() if known == kind)

    def classes(self) -> list[tuple[str, str, int]]:
        """Name, key and count of each class button."""
        parts = "[...document.querySelectorAll('.class')].map((one) => ['.name', 'kbd', '.count'].map("
        rows = self.script(f"return {parts}(part) => one.querySelector(part).textContent))")
        return [(name, key, int(count.replace(",", ""))) for name, key, count in rows]

    def label(self, count: int = 1) -> list[str]:
        """Label pictures correctly, by keyboard; the result is their names."""
        names = []
        for _ in range(count):
            names.append(self.name())
            self.press(self.key_of(names[-1]))
            self.until_after(names[-1])
        return names

    def until_after(self, name: str) -> None:
        """Wait until another picture is shown."""
        self.until(lambda: self.text("#image-name") != name)

    def saved(self) -> None:
        """Wait until everything is saved."""
        self.until(lambda: not self.one("#unsaved").is_displayed())
