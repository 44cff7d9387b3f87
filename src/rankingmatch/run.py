"""The run directory, which this module alone knows the files of, and training inside one."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from rankingmatch import __version__
from rankingmatch.augment import view_policies
from rankingmatch.checkpoint import (
    ModelCard,
    load_model,
    restore_latest,
    save_checkpoint,
    save_model,
    write_atomically,
    write_json,
)
from rankingmatch.config import Config
from rankingmatch.data import Split, benchmark, make_split, rows_to_json
from rankingmatch.errors import ConfigError, DivergedError, RunError, unknown_name
from rankingmatch.methods import make_method
from rankingmatch.networks import Classifier
from rankingmatch.records import Record
from rankingmatch.state import State, initial_state
from rankingmatch.train import train


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
    def checkpoints(self) -> Path:
        """Where training can be taken up again."""
        return self.path / "checkpoints"

    def exists(self) -> bool:
        """Whether the directory holds a run."""
        return (self.path / "config.json").exists()

    def refuse_if_taken(self) -> None:
        """Raise RunError if the directory holds a run already, or what is left of one."""
        if self.exists():
            raise RunError(
                f"{self.path} already holds a run; go on with it by --resume, or choose another place with --out"
            )
        files = ("result.json", "metrics.jsonl", "model.safetensors", "best.safetensors", "checkpoints")
        left = [name for name in files if (self.path / name).exists()]
        if left:
            raise RunError(f"{self.path} has a {left[0]} but no config.json; remove it or choose another --out")

    def create(self, config: Config) -> None:
        """Make the directory and write the configuration; never over another run."""
        self.refuse_if_taken()
        environment = {
            "rankingmatch": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.platform(),
            "processors": os.cpu_count(),
        }
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.path / "config.json", {**config.to_json(), "environment": environment})
        except OSError as error:
            raise RunError(f"{self.path} cannot be written ({error.strerror}); choose another --out") from error

    def config(self) -> Config:
        """The configuration the run was made with."""
        path = self.path / "config.json"
        if not path.exists():
            raise RunError(f"{self.path} holds no run: there is no config.json")
        with _damage_named(path):
            return Config.from_json(json.loads(path.read_text()))

    def result(self) -> Result | None:
        """The result, None while the run is not finished."""
        path = self.path / "result.json"
        if not (self.exists() and path.exists()):
            return None
        with _damage_named(path):
            return Result(**json.loads(path.read_text()))

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
        """Take the directory for this process; RunError if another one works in it."""
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RunError(f"{self.path} is being worked on by another process; wait for it, or stop it") from None
        return lock

    def keep_history_until(self, step: int) -> None:
        """Forget evaluations after a step: training goes on from there and makes them again."""
        kept = [json.dumps(line) + "\n" for line in self.history() if line["step"] <= step]
        write_atomically(self.path / "metrics.jsonl", "".join(kept).encode())

    def append(self, record: Record) -> None:
        """Add an evaluation to the history."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(flat(record)) + "\n")

    def load_model(self, device: torch.device, *, best: bool = False) -> tuple[Classifier, ModelCard]:
        """The trained model: of the last step, or the one best on validation."""
        if not self.model_path.exists():
            raise RunError(f"{self.path} has no trained model yet; finish it with --resume")
        if best and not self.best_path.exists():
            raise RunError(f"{self.path} has no {self.best_path.name}: it is written when there are validation images")
        return load_model(self.best_path if best else self.model_path, device)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file of a run directory is said in one line, with its name."""
    try:
        yield
    except (OSError, ValueError, TypeError, ConfigError) as error:
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


def load_split(config: Config) -> Split:
    """The images and labels that a configuration asks for."""
    return make_split(benchmark(config.dataset).load(config.execution.data_path()), config.data, config.training.seed)


@dataclass
class Job:
    """A run ready to be worked on: nothing that the user got wrong can come up after this."""

    run: Run
    config: Config
    split: Split
    state: State
    lock: FileLock


def begin(run: Run, config: Config) -> Job:
    """Load the data and build the state, from the newest checkpoint if there is one; create the run if it is new."""
    device = config.execution.torch_device()
    if config.execution.threads:
        torch.set_num_threads(config.execution.threads)
    if device.type == "cuda":  # resuming to the same bits needs kernels that always compute the same
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    split = load_split(config)
    method = make_method(config.method, config.hyperparameters)
    for view in (*method.labeled_views, *method.unlabeled_views):
        if view not in view_policies(config.views):
            raise unknown_name("view", view, view_policies(config.views), f" (asked for by {config.method})")
    state = initial_state(split, method, config.network, config.training, device)
    is_new = not run.exists()
    if is_new:
        run.create(config)
        write_json(run.path / "split.json", rows_to_json(split), indent=None)
    lock = run.lock()
    if not is_new:
        restore_latest(run.checkpoints, state)
        run.keep_history_until(state.step)
    return Job(run, config, split, state, lock)


def never() -> bool:
    """A run that nobody stops."""
    return False


def work(job: Job, stopped: Callable[[], bool] = never) -> Iterator[Record]:
    """Train to the end and leave model and result in the run directory; yields the loop's records.

    When `stopped` says so, a checkpoint is written and training ends early; it can be taken up again to the
    identical result. Raises DivergedError, with the last good checkpoint left in place.
    """
    run, config, split, state = job.run, job.config, job.split, job.state
    height, width, channels = split.images.shape[1:]
    card = ModelCard(config.network.network, split.classes, channels, height, width)
    saved = time.monotonic()
    try:
        for record in train(state, split, view_policies(config.views), config.training):
            if record.evaluation:
                run.append(record)
                if record.evaluation.best:
                    save_model(run.best_path, state.ema, card)
            stop = stopped()
            if stop or _checkpoint_is_due(config, state, saved):
                state.raise_if_diverged()
                save_checkpoint(run.checkpoints, state)
                saved = time.monotonic()
            yield record
            if stop:
                return
        save_checkpoint(run.checkpoints, state)
        save_model(run.model_path, state.ema, card)
        _write_result(job)
    except GeneratorExit:  # the caller broke off, for whatever reason: keep what there is
        state.raise_if_diverged()
        save_checkpoint(run.checkpoints, state)
        raise
    except DivergedError as error:
        _write_result(job, error)
        raise
    finally:
        job.lock.release()


def _checkpoint_is_due(config: Config, state: State, saved: float) -> bool:
    every = config.execution.checkpoint_steps
    due = every is not None and state.step % every == 0
    return due or time.monotonic() - saved >= config.execution.checkpoint_seconds


def _write_result(job: Job, diverged: DivergedError | None = None) -> None:
    result = Result(
        dataset=job.config.dataset,
        method=job.config.method,
        labels=len(job.split.labeled_rows),
        seed=job.config.training.seed,
        steps=job.state.step,
        seconds=round(job.state.seconds, 3),
        test_error=None,
        val_error=None,
    )
    history = job.run.history()
    if diverged is not None:
        result = replace(result, diverged_at=diverged.step, diverged_part=diverged.part)
    elif history:
        result = replace(result, test_error=history[-1]["test_error"], val_error=history[-1]["val_error"])
    for line in history:
        if line["best"]:
            result = replace(
                result,
                best_step=line["step"],
                best_val_error=line["val_error"],
                best_test_error=line["test_error"],
            )
    write_json(job.run.path / "result.json", asdict(result))
