"""The run directory: this module alone knows its files."""

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
from rankingmatch.runs.checkpoint import ModelCard, load_model
from rankingmatch.runs.config import Config
from rankingmatch.core.errors import ConfigError, RunError
from rankingmatch.networks import Classifier
from rankingmatch.training.records import Record

LOCK = ".lock"


@dataclass(frozen=True)
class Result:
    """What a finished run came to; errors in percent, of the EMA weights."""

    dataset: str
    method: str
    labels: int
    seed: int
    steps: int
    seconds: float
    test_error: float | None
    val_error: float | None
    best_step: int | None = None  # where the validation error was lowest
    best_val_error: float | None = None
    best_test_error: float | None = None  # the test error of those weights
    diverged_at: int | None = None  # the step at which a loss became non-finite
    diverged_part: str | None = None


class Run:
    """A run directory."""

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
        """The page that shows the run."""
        return self.path / "report.html"

    @property
    def card_path(self) -> Path:
        """What to know before using the model, for people."""
        return self.path / "MODEL_CARD.md"

    @property
    def events(self) -> Path:
        """Where TensorBoard finds the run."""
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        """Where training can be taken up again."""
        return self.path / "checkpoints"

    def exists(self) -> bool:
        """Whether the directory holds a run."""
        return (self.path / "config.json").exists()

    def refuse_if_taken(self) -> None:
        """Raise RunError if the directory holds a run, or anything else: nothing is ever mixed."""
        if self.exists():
            raise RunError(
                f"{self.path} already holds a run; go on with that one by --resume, or begin another with --out"
            )
        # A crash while the run was being created may have left an unfinished config.json, which is nothing to keep.
        left = (name.name for name in self.path.iterdir()) if self.path.is_dir() else ()
        if any(not name.startswith("config.json.") and name != LOCK for name in left):
            raise RunError(f"{self.path} is not empty, but has no config.json: it is no run; choose another --out")

    def create(self, config: Config) -> None:
        """Make the directory and write the configuration, which makes it a run; never over another."""
        self.refuse_if_taken()
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
            raise RunError(f"{self.path} cannot be written ({error.strerror}); choose another --out") from error

    def refuse_other_settings(self, config: Config) -> None:
        """Raise RunError if the run learns otherwise: another process may have begun it a moment ago."""
        if not self.config().learns_as(config):
            raise RunError(f"{self.path} holds a run with other settings; begin another with --out")

    def refuse_other_images(self, fingerprint: str) -> None:
        """Raise RunError if the run began with other images than those of this fingerprint."""
        path = self.path / "split.json"
        if not path.exists():
            return
        with _damage_named(path):
            began = json.loads(path.read_text()).get("fingerprint", "")
        if began != fingerprint:
            raise RunError(
                f"the folder has changed since {self.path} began, and a run goes on only with the same images; "
                "restore them, or start another run with --out"
            )

    def save_rows(self, rows: dict[str, Any]) -> None:
        """Write which training images are labeled and which validate."""
        write_json(self.path / "split.json", rows, indent=None)

    def skipped(self) -> list[tuple[str, str]]:
        """The files of a folder that were left out, and why."""
        path = self.path / "split.json"
        if not path.exists():
            return []
        with _damage_named(path):
            return [(file, reason) for file, reason in json.loads(path.read_text()).get("skipped", ())]

    def config(self) -> Config:
        """The configuration the run was made with."""
        path = self.path / "config.json"
        if not path.exists():
            raise RunError(f"{self.path} holds no run: there is no config.json")
        with _damage_named(path):
            return Config.from_json(json.loads(path.read_text()))

    def environment(self) -> dict[str, Any]:
        """Where the run was made: versions and machine."""
        path = self.path / "config.json"
        with _damage_named(path):
            return dict(json.loads(path.read_text()).get("environment", {}))

    def label_count(self) -> int | None:
        """How many training images are labeled; None before they were chosen."""
        path = self.path / "split.json"
        if not path.exists():
            return None
        with _damage_named(path):
            return len(json.loads(path.read_text())["labeled"])

    def result(self) -> Result | None:
        """The result, None while the run is not finished."""
        path = self.path / "result.json"
        if not (self.exists() and path.exists()):
            return None
        with _damage_named(path):
            return Result(**json.loads(path.read_text()))

    def finish(self, result: Result) -> None:
        """Write the result: the run is over."""
        write_json(self.path / "result.json", asdict(result))

    def history(self) -> list[dict[str, Any]]:
        """The evaluations so far, oldest first; a line torn by a crash is not one."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        with _damage_named(path):
            lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            history = [json.loads(line) for line in lines]
            if not all(isinstance(line, dict) and isinstance(line.get("step"), int) for line in history):
                raise ValueError("a line is not an evaluation")
            return history

    def lock(self) -> FileLock:
        """Make the directory and take it for this process; RunError if another one works in it."""
        lock = FileLock(self.path / LOCK)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise RunError(f"{self.path} is being worked on by another process; wait for it, or stop it") from None
        except OSError as error:
            raise RunError(f"{self.path} cannot be written ({error.strerror}); choose another --out") from error
        return lock

    def cannot_be_written(self, error: OSError) -> RunError:
        """What to say when a disk is full or gone; the last checkpoint is whole."""
        return RunError(
            f"{self.path} cannot be written ({error.strerror or error}); make room or make it writable, "
            f"then go on with: rankingmatch train --resume --out {self.path}"
        )

    def keep_history_until(self, step: int) -> None:
        """Forget evaluations and costs after a step: training goes on from there and makes them again."""
        kept = [json.dumps(line) + "\n" for line in self.history() if line["step"] <= step]
        write_atomically(self.path / "metrics.jsonl", "".join(kept).encode())
        if len(costs := self.step_costs()):
            (self.path / "steps.csv").unlink()
            for number, seconds, memory in costs[costs[:, 0] <= step]:
                self.append_step(int(number), seconds, int(memory))

    def append(self, record: Record, step_seconds: float, memory: int) -> None:
        """Add an evaluation to the history, with what the steps before it cost: mean seconds, peak bytes."""
        costs = {"step_seconds": round(step_seconds, 6), "memory": memory}
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({**flat(record), **costs}) + "\n")
            file.flush()
            os.fsync(file.fileno())  # a checkpoint, which is safe from a power failure, may follow

    def append_step(self, step: int, seconds: float, memory: int) -> None:
        """Add what a step cost to steps.csv: seconds, and peak memory in bytes."""
        path = self.path / "steps.csv"
        head = "" if path.exists() else "step,seconds,memory\n"
        with path.open("a") as file:
            file.write(f"{head}{step},{seconds:.6f},{memory}\n")

    def step_costs(self) -> np.ndarray:
        """(steps, 3) array of step, seconds and peak memory in bytes; empty if they were not measured."""
        path = self.path / "steps.csv"
        if not path.exists():
            return np.empty((0, 3))
        with _damage_named(path):
            lines = [line for line in path.read_text().splitlines(keepends=True)[1:] if line.endswith("\n")]
            return np.loadtxt(lines, delimiter=",", ndmin=2) if lines else np.empty((0, 3))

    def load_model(self, device: torch.device, *, best: bool = False) -> tuple[Classifier, ModelCard]:
        """The trained model: of the last step, or the one best on validation."""
        result = self.result()
        if result is not None and result.diverged_at is not None:
            raise RunError(f"{self.path} has no trained model: it diverged at step {result.diverged_at}")
        if not self.model_path.exists():
            raise RunError(
                f"{self.path} has no trained model yet; finish it with: rankingmatch train --resume --out {self.path}"
            )
        if best and not self.best_path.exists():
            raise RunError(f"{self.path} has no {self.best_path.name}: it is written when there are validation images")
        return load_model(self.best_path if best else self.model_path, device)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file of a run directory is said in one line, with its name."""
    try:
        yield
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, ConfigError) as error:
        raise RunError(f"{path} cannot be used ({error}); start another run with --out") from error


def flat(record: Record) -> dict[str, Any]:
    """A record as one level of plain values: a line of metrics.jsonl."""
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
