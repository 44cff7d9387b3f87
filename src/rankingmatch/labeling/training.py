"""Training from the labeling page: `rankingmatch train` in a process of its own."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

from rankingmatch.core.errors import first_line
from rankingmatch.core.options import flag
from rankingmatch.labeling.random_checks import error_interval
from rankingmatch.labeling.session import RequestError, Session

__all__ = ["Training"]

MORE: list[str] = []  # arguments of every training, for tests


class Training:
    """The trainings of a session, one at a time; `directory` is where run directories are created."""

    def __init__(self, session: Session, directory: Path = Path("runs")) -> None:
        self._session = session
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self._runs: dict[str, Path] = {}
        self._stopped = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start to train on the labels so far; raise RequestError if that is not possible."""
        with self._lock:
            if self.running:
                raise RequestError("a training is already running; wait for it, or stop it")
            if sum(one["count"] > 0 for one in self._session.state()["classes"]) < 2:
                raise RequestError("label images of at least two classes before training")
            run, table = self._snapshot()
            command = ["train", str(self._session.root), flag("labels_csv"), str(table), flag("out"), str(run)]
            shown = {"state": "running", "step": 0, "steps": None, "eta": None, "error": None}
            shown |= {"message": "preparing the images", "done": 0, "total": None, "test": 0, "report": None}
            shown |= {"command": shlex.join(["rankingmatch", *command])}
            errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - the thread closes it
            self._stopped = False
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rankingmatch", *command, *MORE, flag("json")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C is for the server, which then stops the training itself
            )
            self._session.show(training=shown)
            threading.Thread(target=self._follow, args=(self._process, run, shown, errors), daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether a training is running."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Ask the training to write a checkpoint and stop."""
        process = self._process
        if process is not None and process.poll() is None:
            self._stopped = True
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)  # SIGINT is ignored in the background of a script

    def close(self, seconds: float = 20) -> None:
        """Stop the training and wait for it."""
        self.stop()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def report_of(self, name: str) -> Path:
        """The report of a run of this session; raise RequestError if there is none."""
        path = self._runs.get(name)
        if path is None or not (path / "report.html").is_file():
            raise RequestError("there is no report of this training")
        return path / "report.html"

    def _snapshot(self) -> tuple[Path, Path]:
        """A new run directory, and a copy of the journal: labels may be added while it trains."""
        stem = f"{self._session.root.name}-{self._session.state()['labeled']}-labels"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            number, run = 1, self._directory / stem
            while os.path.lexists(run) or os.path.lexists(f"{run}.csv"):
                number += 1
                run = self._directory / f"{stem}-{number}"
            self._session.copy_journal(Path(f"{run}.csv"))
        except OSError as error:
            raise RequestError(
                f"{self._directory.resolve()} cannot be written ({error.strerror}); start the server elsewhere"
            ) from error
        return run, Path(f"{run}.csv")

    def _follow(self, process: "subprocess.Popen[str]", run: Path, shown: dict[str, Any], errors: IO[str]) -> None:
        """Show the events of a training until it ends."""
        assert process.stdout is not None
        end: dict[str, Any] = {"state": "failed", "eta": None}
        try:
            with process, errors:
                for line in process.stdout:
                    with contextlib.suppress(ValueError, KeyError, TypeError, ZeroDivisionError):
                        shown = {**shown, **_progress(json.loads(line), shown)}
                        self._session.show(training=shown)
                code = process.wait()
                errors.seek(0)
                last = (errors.read().strip().splitlines() or [f"training ended with code {code}"])[-1]
            if code == 0:
                self._runs[run.name] = run
                report = f"/report/{run.name}" if (run / "report.html").is_file() else None
                end = {"state": "done", "eta": 0, "message": f"the model is in {run}", "report": report}
            else:
                resume = shlex.join(["rankingmatch", "train", flag("resume"), flag("out"), str(run)])
                end["message"] = f"stopped; to resume: {resume}" if self._stopped else last.removeprefix("error: ")
        except Exception as error:  # a thread that ended silently would show "running" for ever
            end["message"] = f"the training cannot be followed: {first_line(error)}"
        self._session.show(training={**shown, **end})


def _progress(event: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """What the page shows after an event that the training printed."""
    match event["event"]:
        case "loading":
            return {"message": event["task"], "done": event["done"], "total": event["total"]}
        case "start":
            return {"step": event["step"], "steps": event["steps"], "test": event["test"], "message": "training"}
        case "result":
            return {"step": event["steps"], "error": _measured(event, shown["test"])}
    left = event["seconds"] / event["step"] * (shown["steps"] - event["step"])
    error = _measured(event, shown["test"]) if event["event"] == "evaluation" else shown["error"]
    return {"step": event["step"], "eta": left, "error": error}


def _measured(event: dict[str, Any], checks: int) -> dict[str, float] | None:
    """The error in percent on the random checks, with its interval; None without any."""
    error = event["test_error"]
    if error is None or not checks:
        return None
    low, high = error_interval(round(error / 100 * checks), checks)
    return {"percent": error, "low": low, "high": high, "checks": checks}
