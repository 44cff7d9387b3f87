"""The run directory: only this module knows its files."""

import json
import os
import platform
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from rankingmatch import __version__
from rankingmatch.core.atomic import open_for_appending, write_atomically, write_json
from rankingmatch.core.errors import ConfigError, RunError, setting
from rankingmatch.core.imports import require_trusted, trust
from rankingmatch.core.untrusted import (
    FORMATS,
    BadFileError,
    Size,
    check_format,
    check_value,
    in_line,
    read_bytes,
    read_json,
    read_json_lines,
    typed,
)
from rankingmatch.networks import Classifier
from rankingmatch.runs.config import Config
from rankingmatch.runs.model import ModelInfo, load_model
from rankingmatch.runs.result import Result, check_line, record_to_json
from rankingmatch.training.records import Record

LOCK = ".lock"
OWN_FILES = (
    *("config.json", "split.json", "result.json", "metrics.jsonl", "steps.csv"),
    *("model.safetensors", "best.safetensors"),
)
COSTS = "step,seconds,memory\n"
MOST_COSTS = 2**26  # bytes of steps.csv: a million steps have 25 MB


@dataclass(frozen=True)
class SplitRows:
    """The content of split.json: rows of images, and the files of a folder that were skipped, and why."""

    labeled: list[Size]
    validation: list[Size]
    fingerprint: str = ""
    skipped: list[tuple[str, str]] = field(default_factory=list)


class Run:
    """A run directory.

    Parameters
    ----------
    path
        The directory, which need not exist yet.
    trust
        Whether a method or network that the files name by an import path may be imported, which runs its code.

    Attributes
    ----------
    model_path, best_path
        The EMA weights of the last step, and those with the lowest validation error.
    report_path, card_path
        The report page, and the model card.
    checkpoints, tensorboard_path
        The directories of checkpoints, and of TensorBoard event files.
    """

    def __init__(self, path: str | Path, *, trust: bool = False) -> None:
        self.path = Path(path)
        self.trust = trust
        self.model_path = self.path / "model.safetensors"
        self.best_path = self.path / "best.safetensors"
        self.report_path = self.path / "report.html"
        self.card_path = self.path / "MODEL_CARD.md"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard_path = self.path / "tensorboard"
        self._lock: FileLock | None = None  # while this process holds it

    @classmethod
    def at(cls, run: "Run | str | Path", *, trust: bool = False) -> "Run":
        """A run that is given as such, or as its directory."""
        return run if isinstance(run, Run) else cls(run, trust=trust)

    def exists(self) -> bool:
        """Whether the directory holds a run."""
        return (self.path / "config.json").exists()

    def require_empty(self) -> None:
        """Raise RunError if the directory holds a run or anything else: nothing is ever mixed."""
        # Looked at once, because another process may be creating a run there.
        found = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        other = f"choose another {setting('out')}"
        if "config.json" in found:
            raise RunError(f"{self.path} already holds a run; resume it with {setting('resume')}, or {other}")
        # A crash during the creation of the run may have left an unfinished config.json, which is worthless.
        if any(not name.startswith("config.json.") and name != LOCK for name in found):
            raise RunError(f"{self.path} is not empty and not a run, because it has no config.json; {other}")

    def create(self, config: Config) -> dict[str, Any]:
        """Write the configuration, which makes the directory a run, never over another one; returns the environment."""
        self.require_empty()
        environment = {
            "rankingmatch": __version__,
            "commit": source_commit(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.platform(),
            "processors": os.cpu_count(),
        }
        with self._writable():
            write_json(self.path / "config.json", {**config.to_json(), "environment": environment})
        return environment

    def save_rows(self, rows: dict[str, Any]) -> None:
        """Write which training images are labeled and which are held out for validation."""
        write_json(self.path / "split.json", {"format": FORMATS["split"], **rows}, indent=None)

    def _values(self, kind: str) -> dict[str, Any]:
        """The content of a JSON file, whose format this version knows."""
        path = self.path / f"{kind}.json"
        values = read_json(path)
        check_format(kind, values, path)
        return values

    def split_rows(self) -> SplitRows | None:
        """The content of split.json; None before it is written."""
        path = self.path / "split.json"
        if not path.exists():
            return None
        with _readable(path):
            values, known = self._values("split"), {field.name for field in fields(SplitRows)}
            return typed(SplitRows, {name: value for name, value in values.items() if name in known})

    def config(self) -> Config:
        """The configuration of the run."""
        path = self.path / "config.json"
        if not path.exists():
            raise RunError(f"{self.path} is not a run directory: it has no config.json")
        with _readable(path):
            values = self._values("config")
        network = values.get("network")
        names = {"method": values.get("method"), "network": network.get("network") if isinstance(network, dict) else ""}
        for kind, name in names.items():
            if isinstance(name, str):
                if self.trust:
                    trust([name])
                require_trusted(kind, name, path)
        with _readable(path):
            return Config.from_json(values)

    def environment(self) -> dict[str, Any]:
        """Versions and machine of the process that created the run."""
        with _readable(self.path / "config.json"):
            values = check_value("environment", self._values("config").get("environment", {}), dict)
        plain = {name: value for name, value in values.items() if isinstance(value, (str, int, float))}
        return {name: value if isinstance(value, int) else str(value)[:200] for name, value in plain.items()}

    def result(self) -> Result | None:
        """The result; None while the run is not finished."""
        path = self.path / "result.json"
        if not (self.exists() and path.exists()):
            return None
        with _readable(path):
            return Result.from_json(self._values("result"))

    def is_finished(self) -> bool:
        """Whether the run has a result and, unless it diverged, its model: a deleted one is written again."""
        result = self.result()
        return result is not None and (result.diverged_at is not None or self.model_path.exists())

    def finish(self, result: Result) -> None:
        """Write the result, which finishes the run."""
        write_json(self.path / "result.json", result.to_json())

    def history(self) -> list[dict[str, Any]]:
        """The evaluations so far, oldest first, without a last line that a crash cut short."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        with _readable(path, f"delete the line, or start another run with {setting('out')}"):
            history = list(read_json_lines(path))
            for number, line in enumerate(history, 1):
                check_format("metrics", line, path)
                line.pop("format", None)
                with in_line(number):
                    check_line(line)
            if len({len(line["class_shares"]) for line in history if line.get("class_shares")}) > 1:
                raise BadFileError("class_shares are those of different numbers of classes")
            return history

    def lock(self) -> None:
        """Create the directory and lock it for this process; RunError if another process uses it."""
        with self._writable():
            self.path.mkdir(parents=True, exist_ok=True)
            self.require_no_links()
            try:
                lock = FileLock(self.path / LOCK)
                lock.acquire(timeout=0)
                self._lock = lock
            except Timeout:
                raise RunError(f"{self.path} is in use by another process; wait for it, or stop it") from None

    def unlock(self) -> None:
        """Let other processes use the directory."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be written ({error.strerror}); choose another {setting('out')}"
            ) from error

    def require_no_links(self) -> None:
        """Raise RunError if something in the directory is a link or a device: only the directory itself is written to.

        A run directory that someone else has made could have a link in the place of a file or directory that a run
        writes to, or deletes old checkpoints from.
        """
        for folder in (self.path, self.checkpoints, self.tensorboard_path):
            for entry in folder.iterdir() if folder.is_dir() else ():
                mode = entry.lstat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    kind = "a link" if stat.S_ISLNK(mode) else "a device or named pipe"
                    raise RunError(
                        f"{entry} is {kind}, and a run writes only to files in its own directory; delete it, or "
                        "put a copy in its place"
                    )

    def require_output(self, path: Path, option: str | None = "out") -> None:
        """Raise ConfigError unless a file, which is not one of the run's own, can be written to a path."""
        out = str(path) if option is None else f"{setting(option)} {path}"
        if not path.parent.is_dir():
            raise ConfigError(f"{out} cannot be written: there is no directory {path.parent}")
        if path.is_dir():
            raise ConfigError(f"{out} is a directory; name a file")
        if path.exists() and path.name in OWN_FILES and path.resolve().parent == self.path.resolve():
            raise ConfigError(f"{out} is a file of the run, which would be lost; choose another one")

    def go_back(self, step: int) -> tuple[list[dict[str, Any]], list[tuple[int, float, int]]]:
        """Delete evaluations and costs after a step, from which training resumes; returns those before."""
        history = [line for line in self.history() if line["step"] <= step]
        text = "".join(json.dumps({"format": FORMATS["metrics"], **line}) + "\n" for line in history)
        write_atomically(self.path / "metrics.jsonl", text.encode())
        costs = self.step_costs()
        (self.path / "steps.csv").unlink(missing_ok=True)
        kept = [self.append_step(int(number), *cost) for number, *cost in costs[costs[:, 0] <= step].tolist()]
        return history, kept

    def append(self, record: Record, step_seconds: float, memory: int) -> dict[str, Any]:
        """Add an evaluation to the history, with the cost of the steps before it: mean seconds, peak bytes.

        Returns the line as `history` would read it.
        """
        line = {**record_to_json(record), "step_seconds": round(step_seconds, 6), "memory": memory}
        with open_for_appending(self.path / "metrics.jsonl") as file:
            file.write(json.dumps({"format": FORMATS["metrics"], **line}) + "\n")
            file.flush()
            os.fsync(file.fileno())  # a checkpoint, which is safe from a power failure, may follow
        return line

    def append_step(self, step: int, seconds: float, memory: float) -> tuple[int, float, int]:
        """Add the cost of a step to steps.csv, and return it: seconds, and peak memory in bytes."""
        path = self.path / "steps.csv"
        head = "" if path.exists() else COSTS
        with open_for_appending(path) as file:
            file.write(f"{head}{step},{seconds:.6f},{memory:.0f}\n")
        return step, round(seconds, 6), int(memory)

    def step_costs(self) -> np.ndarray:
        """(steps, 3) array of step, seconds and peak memory in bytes; empty if they were not measured."""
        path = self.path / "steps.csv"
        if not path.exists():
            return np.empty((0, 3))
        with _readable(path):
            text = read_bytes(path, MOST_COSTS).decode()
            head, *lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")] or [COSTS]
            if head != COSTS:
                raise BadFileError("its first line is not that of a table of costs")
            costs = np.loadtxt(lines, delimiter=",", ndmin=2) if lines else np.empty((0, 3))
            if costs.shape[1] != 3 or not (np.isfinite(costs) & (costs >= 0) & (costs < 2**53)).all():
                raise BadFileError("its lines must have a step, seconds and bytes")
            return costs

    def load_model(self, device: str | torch.device = "cpu", *, best: bool = False) -> tuple[Classifier, ModelInfo]:
        """The trained model: of the last step, or the best one on validation images."""
        result = self.result()
        if result is not None and result.diverged_at is not None:
            raise RunError(f"{self.path} has no trained model: it diverged at step {result.diverged_at}")
        if not self.model_path.exists():
            raise RunError(f"{self.path} has no trained model yet, because it is not finished", resumable=self.path)
        if best and not self.best_path.exists():
            had = result is not None and result.best_step is not None
            reason = "it was deleted" if had else "it needs validation images"
            raise RunError(f"{self.path} has no {self.best_path.name}: {reason}")
        return load_model(self.best_path if best else self.model_path, torch.device(device), trust=self.trust)


@contextmanager
def _readable(path: Path, remedy: str = "") -> Iterator[None]:
    """Report a damaged file of a run directory in one line, with its name and what to do."""
    try:
        yield
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, ConfigError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        remedy = remedy or f"start another run with {setting('out')}"
        raise RunError(f"{path} cannot be used ({reason}); {remedy}") from error


@cache
def source_commit() -> str:
    """The first 12 digits of the commit of the source code, "+" if files have changed since; "" without Git."""
    source = Path(__file__).resolve().parents[1]
    if not (source.parents[1] / ".git").exists():  # installed, perhaps inside somebody else's repository
        return ""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", source, *words], capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = git("rev-parse", "HEAD")[:12]
        return commit + ("+" if commit and git("status", "-s", ".") else "")
    except (OSError, subprocess.TimeoutExpired):
        return ""
