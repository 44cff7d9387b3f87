"""The run directory: only this module knows its files."""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from rankingmatch import __version__
from rankingmatch.core.atomic import write_atomically, write_json
from rankingmatch.core.errors import ConfigError, RunError, setting
from rankingmatch.core.formats import FORMATS, check_format
from rankingmatch.networks import Classifier
from rankingmatch.runs.config import Config
from rankingmatch.runs.model import ModelInfo, load_model
from rankingmatch.training.records import Record

__all__ = ["Result", "Run"]

LOCK = ".lock"


@dataclass(frozen=True)
class Result:
    """The outcome of a finished run; errors are in percent and of the EMA weights.

    Attributes
    ----------
    dataset, method, labels, seed
        What was trained: names, the number of labels, and the random seed.
    steps, seconds
        How long it took.
    test_error, val_error
        Errors at the last step; None without such images.
    best_step, best_val_error, best_test_error
        The step with the lowest validation error, and the errors there.
    diverged_at, diverged_part
        The step at which a loss became non-finite, and which one; None if training did not diverge.
    """

    dataset: str
    method: str
    labels: int
    seed: int
    steps: int
    seconds: float
    test_error: float | None
    val_error: float | None
    best_step: int | None = None
    best_val_error: float | None = None
    best_test_error: float | None = None
    diverged_at: int | None = None
    diverged_part: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the format number."""
        return {"format": FORMATS["result"], **asdict(self)}


class Run:
    """A run directory.

    Parameters
    ----------
    path
        The directory, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def model_path(self) -> Path:
        """The EMA weights of the last step."""
        return self.path / "model.safetensors"

    @property
    def best_path(self) -> Path:
        """The EMA weights with the lowest validation error."""
        return self.path / "best.safetensors"

    @property
    def report_path(self) -> Path:
        """The report page."""
        return self.path / "report.html"

    @property
    def card_path(self) -> Path:
        """The model card."""
        return self.path / "MODEL_CARD.md"

    @property
    def tensorboard_path(self) -> Path:
        """The directory of TensorBoard event files."""
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        """The directory of checkpoints."""
        return self.path / "checkpoints"

    def exists(self) -> bool:
        """Whether the directory holds a run."""
        return (self.path / "config.json").exists()

    def require_empty(self) -> None:
        """Raise RunError if the directory holds a run or anything else: nothing is ever mixed."""
        if self.exists():
            raise RunError(
                f"{self.path} already holds a run; resume it with {setting('resume')}, or choose another "
                f"{setting('out')}"
            )
        # A crash during the creation of the run may have left an unfinished config.json, which is worthless.
        found = (entry.name for entry in self.path.iterdir()) if self.path.is_dir() else ()
        if any(not name.startswith("config.json.") and name != LOCK for name in found):
            raise RunError(
                f"{self.path} is not empty and not a run, because it has no config.json; choose another "
                f"{setting('out')}"
            )

    def create(self, config: Config) -> None:
        """Create the directory and write the configuration, which makes it a run; never over another one."""
        self.require_empty()
        environment = {
            "rankingmatch": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.platform(),
            "processors": os.cpu_count(),
        }
        try:
            write_json(self.path / "config.json", {**config.to_json(), "environment": environment})
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be written ({error.strerror}); choose another {setting('out')}"
            ) from error

    def require_same_settings(self, config: Config) -> None:
        """Raise RunError if the run has other settings: another process may have started it a moment ago."""
        if not self.config().learns_like(config):
            raise RunError(f"{self.path} holds a run with other settings; choose another {setting('out')}")

    def require_same_images(self, fingerprint: str) -> None:
        """Raise RunError if the run was started with other images than those of this fingerprint."""
        split = self._split()
        if split is not None and split.get("fingerprint", "") != fingerprint:
            raise RunError(
                f"the folder has changed since {self.path} was started, and a run can only be resumed with the same "
                f"images; restore them, or start another run with {setting('out')}"
            )

    def save_rows(self, rows: dict[str, Any]) -> None:
        """Write which training images are labeled and which are held out for validation."""
        write_json(self.path / "split.json", {"format": FORMATS["split"], **rows}, indent=None)

    def _split(self) -> dict[str, Any] | None:
        """The content of split.json; None before it is written."""
        path = self.path / "split.json"
        return self._read("split", path) if path.exists() else None

    def _read(self, kind: str, path: Path) -> dict[str, Any]:
        """A JSON file of the run, whose format this version knows."""
        with _readable(path):
            values = json.loads(path.read_text())
            if not isinstance(values, dict):
                raise TypeError("it is not a JSON object")
            check_format(kind, values, path)
            return values

    def skipped(self) -> list[tuple[str, str]]:
        """The files of a folder that were skipped, and why."""
        with _readable(self.path / "split.json"):
            return [(file, reason) for file, reason in (self._split() or {}).get("skipped", ())]

    def config(self) -> Config:
        """The configuration of the run."""
        path = self.path / "config.json"
        if not path.exists():
            raise RunError(f"{self.path} is not a run directory: it has no config.json")
        values = self._read("config", path)
        with _readable(path):
            return Config.from_json(values)

    def environment(self) -> dict[str, Any]:
        """Versions and machine of the process that created the run."""
        path = self.path / "config.json"
        with _readable(path):
            return dict(self._read("config", path).get("environment", {}))

    def label_count(self) -> int | None:
        """The number of labeled training images; None before they are chosen."""
        split = self._split()
        with _readable(self.path / "split.json"):
            return None if split is None else len(split["labeled"])

    def result(self) -> Result | None:
        """The result; None while the run is not finished."""
        path = self.path / "result.json"
        if not (self.exists() and path.exists()):
            return None
        values = self._read("result", path)
        with _readable(path):
            return Result(**{name: value for name, value in values.items() if name != "format"})

    def finish(self, result: Result) -> None:
        """Write the result, which finishes the run."""
        write_json(self.path / "result.json", result.to_json())

    def history(self) -> list[dict[str, Any]]:
        """The evaluations so far, oldest first, without a last line that a crash cut short."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        with _readable(path):
            lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            history = [json.loads(line) for line in lines]
            if not all(isinstance(line, dict) and isinstance(line.get("step"), int) for line in history):
                raise ValueError("a line is not an evaluation")
            for line in history:
                check_format("metrics", line, path)
                line.pop("format", None)
            return history

    def lock(self) -> FileLock:
        """Create the directory and lock it for this process; RunError if another process uses it."""
        lock = FileLock(self.path / LOCK)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise RunError(f"{self.path} is in use by another process; wait for it, or stop it") from None
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be written ({error.strerror}); choose another {setting('out')}"
            ) from error
        return lock

    def write_error(self, error: OSError) -> RunError:
        """The error for a disk that is full or gone; the last checkpoint is intact."""
        return RunError(
            f"{self.path} cannot be written ({error.strerror or error}); free some space or make it writable, and "
            "resume the run",
            resumable=self.path,
        )

    def truncate_history(self, step: int) -> None:
        """Delete evaluations and costs after a step, from which training resumes and records them again."""
        number = {"format": FORMATS["metrics"]}
        kept = [json.dumps({**number, **line}) + "\n" for line in self.history() if line["step"] <= step]
        write_atomically(self.path / "metrics.jsonl", "".join(kept).encode())
        if len(costs := self.step_costs()):
            (self.path / "steps.csv").unlink()
            for number, seconds, memory in costs[costs[:, 0] <= step]:
                self.append_step(int(number), seconds, int(memory))

    def append(self, record: Record, step_seconds: float, memory: int) -> None:
        """Add an evaluation to the history, with the cost of the steps before it: mean seconds, peak bytes."""
        costs = {"step_seconds": round(step_seconds, 6), "memory": memory}
        line = {"format": FORMATS["metrics"], **record_to_json(record), **costs}
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())  # a checkpoint, which is safe from a power failure, may follow

    def append_step(self, step: int, seconds: float, memory: int) -> None:
        """Add the cost of a step to steps.csv: seconds, and peak memory in bytes."""
        path = self.path / "steps.csv"
        head = "" if path.exists() else "step,seconds,memory\n"
        with path.open("a") as file:
            file.write(f"{head}{step},{seconds:.6f},{memory}\n")

    def step_costs(self) -> np.ndarray:
        """(steps, 3) array of step, seconds and peak memory in bytes; empty if they were not measured."""
        path = self.path / "steps.csv"
        if not path.exists():
            return np.empty((0, 3))
        with _readable(path):
            lines = [line for line in path.read_text().splitlines(keepends=True)[1:] if line.endswith("\n")]
            return np.loadtxt(lines, delimiter=",", ndmin=2) if lines else np.empty((0, 3))

    def load_model(self, device: torch.device, *, best: bool = False) -> tuple[Classifier, ModelInfo]:
        """The trained model: of the last step, or the best one on validation images."""
        result = self.result()
        if result is not None and result.diverged_at is not None:
            raise RunError(f"{self.path} has no trained model: it diverged at step {result.diverged_at}")
        if not self.model_path.exists():
            raise RunError(f"{self.path} has no trained model yet, because it is not finished", resumable=self.path)
        if best and not self.best_path.exists():
            raise RunError(f"{self.path} has no {self.best_path.name}, which needs validation images")
        return load_model(self.best_path if best else self.model_path, device)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Report a damaged file of a run directory in one line, with its name."""
    try:
        yield
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, ConfigError) as error:
        raise RunError(f"{path} cannot be used ({error}); start another run with {setting('out')}") from error


def record_to_json(record: Record) -> dict[str, Any]:
    """A record as plain values on one level: a line of metrics.jsonl."""
    values: dict[str, Any] = {"step": record.step, "seconds": round(record.seconds, 3)}
    if record.metrics:
        values |= {key: value for key, value in asdict(record.metrics).items() if key != "losses"}
        values |= {f"loss_{name}": value for name, value in record.metrics.losses.items()}
    if record.evaluation:
        values |= {
            "val_error": record.evaluation.validation_error,
            "test_error": record.evaluation.test_error,
            "best": record.evaluation.best,
        }
    return values
