"""Processes that a session starts: any that answers with lines of JSON, and the trainings of the page."""

import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankingmatch.core.atomic import unused_path
from rankingmatch.core.errors import DataError, first_line
from rankingmatch.core.options import flag
from rankingmatch.labeling.random_checks import error_interval
from rankingmatch.labeling.session import RequestError, Session

SECONDS_TO_STOP = 20
MORE: list[str] = []  # arguments of every training, for tests


class Child:
    """A Python process that reads a request from standard input, and prints answers as lines of JSON."""

    def __init__(self, *arguments: str, request: bytes = b"") -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the last answer
        with tempfile.TemporaryFile() as given:
            given.write(request)
            given.seek(0)
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", *arguments],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C is for the server, which then stops the process itself
            )

    def answers(self) -> Iterator[dict[str, Any]]:
        """What it prints; DataError with the last line of its errors if it fails."""
        assert self.process.stdout is not None
        with self._errors, self.process:
            for line in self.process.stdout:
                with contextlib.suppress(ValueError):
                    yield json.loads(line)
            if code := self.process.wait():
                self._errors.seek(0)
                errors = self._errors.read().decode(errors="replace").strip().splitlines()
                raise DataError(errors[-1].removeprefix("error: ") if errors else f"the process ended with code {code}")

    def stop(self) -> None:
        """Ask it to stop, if it has not ended yet."""
        self.process.terminate()  # SIGINT is ignored in the background of a script


class Training:
    """The trainings of a session, one at a time; `directory` is where run directories are created."""

    def __init__(self, session: Session, directory: Path = Path("runs")) -> None:
        self._session, self._directory = session, directory
        self._child: Child | None = None
        self._runs: dict[str, Path] = {}
        self._stopped = False
        self._lock = threading.Lock()

    @property
    def running(self) -> bool:
        """Whether a training is running."""
        return self._child is not None and self._child.process.poll() is None

    def start(self) -> None:
        """Start to train on the labels so far; raise RequestError if that is not possible."""
        with self._lock:
            if self.running:
                raise RequestError("a training is already running; wait for it, or stop it")
            state = self._session.state()
            if sum(one["count"] > 0 for one in state["classes"]) < 2:
                raise RequestError("label images of at least two classes before training")
            try:  # a copy of the journal: labels may be added while it trains
                self._directory.mkdir(parents=True, exist_ok=True)
                run = unused_path(self._directory / f"{self._session.root.name}-{state['labeled']}-labels")
                table = unused_path(Path(f"{run}.csv"))
                self._session.copy_journal(table)
            except OSError as error:
                raise RequestError(
                    f"{self._directory.resolve()} cannot be written ({error.strerror}); start the server elsewhere"
                ) from error
            command = ["train", str(self._session.root), flag("labels_csv"), str(table), flag("out"), str(run)]
            shown = {"state": "running", "message": "preparing the images", "step": 0, "done": 0, "test": 0}
            shown |= dict.fromkeys(("steps", "total", "eta", "error", "report"))
            shown |= {"command": shlex.join(["rankingmatch", *command])}
            self._stopped = False
            self._child = Child("rankingmatch", *command, *MORE, flag("json"))
            self._session.show(training=shown)
            threading.Thread(target=self._follow, args=(self._child, run, shown), daemon=True).start()

    def stop(self) -> None:
        """Ask the training to write a checkpoint and stop."""
        if self._child is not None and self.running:
            self._stopped = True
            self._child.stop()

    def close(self) -> None:
        """Stop the training and wait for it."""
        self.stop()
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.process.wait(SECONDS_TO_STOP)

    def report_of(self, name: str) -> Path:
        """The report of a run of this session; raise RequestError if there is none."""
        path = self._runs.get(name)
        if path is None or not (path / "report.html").is_file():
            raise RequestError("there is no report of this training")
        return path / "report.html"

    def _follow(self, child: Child, run: Path, shown: dict[str, Any]) -> None:
        """Show the events of a training until it ends."""
        try:
            for event in child.answers():
                with contextlib.suppress(ValueError, KeyError, TypeError, ZeroDivisionError):
                    shown = {**shown, **_progress(event, shown)}
                    self._session.show(training=shown)
            self._runs[run.name] = run
            report = f"/report/{run.name}" if (run / "report.html").is_file() else None
            end = {"state": "done", "eta": 0, "message": f"the model is in {run}", "report": report}
        except Exception as error:  # the thread must not end silently: the page would wait for ever
            resume = shlex.join(["rankingmatch", "train", flag("resume"), flag("out"), str(run)])
            message = f"stopped; to resume: {resume}" if self._stopped else first_line(error)
            end = {"state": "failed", "eta": None, "message": message}
        self._session.show(training={**shown, **end})


def _progress(event: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """What the page shows after an event that the training printed."""
    kind = event["event"]
    if kind == "loading":
        return {"message": event["task"], "done": event["done"], "total": event["total"]}
    if kind == "start":
        return {"step": event["step"], "steps": event["steps"], "test": event["test"], "message": "training"}
    if kind == "result":
        new = {"step": event["steps"]}
    else:
        left = event["seconds"] / event["step"] * (shown["steps"] - event["step"])
        new = {"step": event["step"], "eta": left}
    if kind in ("result", "evaluation"):
        error, checks = event["test_error"], shown["test"]
        new["error"] = None
        if error is not None and checks:
            low, high = error_interval(round(error / 100 * checks), checks)
            new["error"] = {"percent": error, "low": low, "high": high, "checks": checks}
    return new
