"""Training a run in its directory: started, or resumed from a checkpoint, until it has a result."""

import contextlib
import hashlib
import json
import logging
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from filelock import FileLock

from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.devices import computes_bfloat16, keep_freed_memory
from rankingmatch.core.distributed import any_process, first_on_each_machine, is_first, on_all_processes, world_size
from rankingmatch.core.errors import (
    ConfigError,
    DivergedError,
    Interrupted,
    RunError,
    first_line,
    is_out_of_memory,
    setting,
)
from rankingmatch.core.names import to_utf8
from rankingmatch.data import Dataset, Progress, Split, make_split, no_progress, rows_to_json
from rankingmatch.data.files import without_downloads
from rankingmatch.methods import make_method
from rankingmatch.runs.checkpoint import restore_latest, save_checkpoint
from rankingmatch.runs.config import Config, Plan, options_of_kind, setting_options
from rankingmatch.runs.directory import Run
from rankingmatch.runs.model import ModelInfo, save_model
from rankingmatch.runs.model_card import model_card
from rankingmatch.runs.recorder import Recorder
from rankingmatch.runs.result import Result, errors_from_json
from rankingmatch.runs.speeds import SHORT_RUN, remember_speed, speed_of_run
from rankingmatch.runs.tensorboard import require_tensorboard
from rankingmatch.training.banks import Computer, computed_here, make_bank
from rankingmatch.training.loop import train
from rankingmatch.training.records import Record
from rankingmatch.training.snapshot import share_state
from rankingmatch.training.state import State, initial_state

log = logging.getLogger(__name__)

__all__ = [
    "Display",
    "Job",
    "load_dataset",
    "load_split",
    "split_dataset",
    "start",
    "stop_requests",
    "train_job",
    "training_records",
]

# A class with so many times the labels of another is worth a warning: their sizes alone shift the difference of their
# logits by ln 5 = 1.6.
UNEVEN = 5
REMEDY_HINT = "rebalance has remedies, for example crest; balanced draws all classes equally often"


def load_dataset(plan: Plan, progress: Progress = no_progress) -> Dataset:
    """The images of a plan."""
    data = plan.config.data
    with contextlib.nullcontext() if plan.downloads else without_downloads():
        return plan.source.load(plan.config.execution.data_path(), data.image_size, progress, crop=data.crop)


def load_split(plan: Plan, progress: Progress = no_progress) -> Split:
    """The images of a plan, with the labels that training may see."""
    split = split_dataset(plan, load_dataset(plan, progress))
    _warn_of_unbalanced_labels(split, plan.config)
    _warn_of_slow_precision(plan.config)
    return split


def split_dataset(plan: Plan, dataset: Dataset) -> Split:
    """The split of a plan's images; raises an error if there are not enough labels for it."""
    config = plan.config
    if config.data.validation and dataset.validation is not None:
        raise ConfigError(
            f"{setting('validation')} is {config.data.validation}, but the data has {len(dataset.validation):,} "
            "validation images already; remove the option"
        )
    return make_split(dataset, config.data, config.training.seed)


def _warn_of_unbalanced_labels(split: Split, config: Config) -> None:
    """Name the largest and the smallest class and the option that helps, unless the user has chosen one."""
    remedy = config.hyperparameters.get("rebalance")
    if config.data.balanced or config.data.imbalance is not None or remedy not in (None, "none"):
        return
    counts = np.bincount(split.labels[split.labeled_rows], minlength=len(split.classes))
    few, many = int(counts.argmin()), int(counts.argmax())
    if counts[many] >= UNEVEN * counts[few]:
        log.warning(
            "the labels are unbalanced: '%s' has %d, '%s' has %d; the option %s",
            *(split.classes[few], counts[few], split.classes[many], counts[many]),
            "balanced draws all classes equally often" if remedy is None else REMEDY_HINT,
        )


def _warn_of_slow_precision(config: Config) -> None:
    """Say it if a CPU will be many times slower in the precision that was asked for."""
    device = config.device()
    if config.training.precision == "bfloat16" and device.type == "cpu" and not computes_bfloat16(device):
        log.warning(
            "this CPU has no instructions for bfloat16, which makes training several times slower than in float32; "
            "the precision auto uses bfloat16 only where it is faster"
        )


@dataclass
class Job:
    """A run that is ready for training: everything the user can get wrong has been checked."""

    run: Run
    plan: Plan
    split: Split
    state: State
    lock: FileLock | None  # held by the first process, as are history and result
    history: list[dict[str, Any]]  # the evaluations so far, as lines of metrics.jsonl
    result: Result | None = None  # when training has ended
    stopped: bool = False  # early, with a checkpoint

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.plan.config

    @property
    def model_info(self) -> ModelInfo:
        """What is needed, besides the weights, to use the model."""
        height, width, channels = self.split.images.shape[1:]
        network, crop = self.config.network.network, self.config.data.crop
        return ModelInfo(network, self.split.classes, channels, height, width, crop=crop)


def start(run: Run, plan: Plan, progress: Progress = no_progress, bank_computer: Computer = computed_here) -> Job:
    """Load the data and build the state, from the newest checkpoint if there is one; create the run if it is new.

    `bank_computer` may compute a bank elsewhere.
    """
    config = plan.config
    device = on_all_processes(lambda: _prepare_device(config))
    split = first_on_each_machine(lambda: load_split(plan, progress))
    method = make_method(config.method, config.hyperparameters)
    state = on_all_processes(
        lambda: initial_state(split, method, config.network, config.views, config.training, device)
    )
    if config.execution.compile:
        on_all_processes(lambda: _require_compiler(device))
        state.model.backbone.compile(dynamic=False)  # the steps of a run have the same few shapes
    state.bank = first_on_each_machine(lambda: make_bank(state, split, config.views, progress, bank_computer))
    lock, history = on_all_processes(lambda: _open(run, config, split, state) if is_first() else (None, []))
    if state.step == 0 and config.network.initial_head == "fitted":
        from rankingmatch.heads.fitting import start_head  # scikit-learn takes a second to import

        on_all_processes(lambda: start_head(state, split, config.training.seed, progress) if is_first() else None)
    share_state(state)
    return Job(run, plan, split, state, lock, history)


def _prepare_device(config: Config) -> torch.device:
    device = config.device()
    if config.execution.tensorboard:
        require_tensorboard()
    if config.execution.threads:
        torch.set_num_threads(config.execution.threads)
    if device.type == "cpu":
        keep_freed_memory()
    if device.type == "cuda":  # resuming to identical weights needs deterministic kernels
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    return device


def _require_compiler(device: torch.device) -> None:
    """Raise ConfigError where torch.compile does not work; it would fail at the first step otherwise."""
    try:
        torch.compile(torch.square)(torch.ones(1, device=device))
    except Exception as error:  # of many kinds, internal to torch
        raise ConfigError(
            f"{setting('compile')} needs torch.compile, which does not work here ({first_line(error)}); install a C++ "
            "compiler, or remove the option"
        ) from error


def _open(run: Run, config: Config, split: Split, state: State) -> tuple[FileLock | None, list[dict[str, Any]]]:
    """Lock the run directory, create it if it is new, and restore its newest checkpoint and its evaluations."""
    lock = run.lock()  # before anything else is read or written: two processes may have been started at once
    try:
        return lock, _create_or_restore(run, config, split, state)
    except BaseException:
        lock.release()
        raise


def _create_or_restore(run: Run, config: Config, split: Split, state: State) -> list[dict[str, Any]]:
    is_new = not run.exists()
    if is_new:
        run.create(config)
    else:
        run.require_same_settings(config)
        run.require_same_images(split.fingerprint)
    run.save_rows(rows_to_json(split))
    if is_new:
        return []
    restore_latest(run.checkpoints, state, identity=run_identity(config, split))
    return run.truncate_history(state.step)


def run_identity(config: Config, split: Split) -> dict[str, Any]:
    """What decides what a run learns: its settings, without paths, and checksums of its images and labeled rows."""
    options = setting_options()
    without = {*options_of_kind("execution", "run"), *(name for name, one in options.items() if one.path)}
    settings = {name: value for name, value in config.settings().items() if name not in without}
    rows = json.dumps([split.labeled_rows.tolist(), split.validation_rows.tolist(), split.images.shape])
    checksum = hashlib.sha256(rows.encode()).hexdigest()[:16]
    return {"method": config.method, **settings, "rows": checksum, "images": split.fingerprint}


class Display(Protocol):
    """Something that shows the progress of a run."""

    def start(self, job: Job) -> None:
        """Called before the first step."""

    def update(self, record: Record) -> None:
        """Called after each step."""

    def progress(self, task: str, done: int, total: int | None) -> None:
        """Called during what takes long between two steps."""

    def close(self) -> None:
        """Called after the last step, or when training ends for another reason."""


def train_job(job: Job, display: Display | None = None) -> None:
    """Train a job to its end, and tell a display how it goes.

    SIGINT and SIGTERM take effect after the current step: a checkpoint is written, and Interrupted is raised.
    """
    try:
        with stop_requests() as stopped:
            if display is not None:
                display.start(job)
            for record in training_records(job, stopped, no_progress if display is None else display.progress):
                if display is not None:
                    display.update(record)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(
            f"{job.state.device} is out of memory; lower {setting('batch_size')} or {setting('mu')}, or use a smaller "
            f"{setting('network')}"
        ) from error
    finally:
        if display is not None:
            display.close()
    if job.stopped:
        raise Interrupted(resumable=job.run.path)


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Inside, SIGINT and SIGTERM are only recorded; the function it yields tells whether one has arrived."""
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, handler in handlers.items():
            if handler is not signal.SIG_IGN:  # nohup and the like ignore signals on purpose
                signal.signal(number, lambda arrived, _: received.append(arrived))
        yield lambda: bool(received)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def never() -> bool:
    """Do not stop."""
    return False


def training_records(
    job: Job, stopped: Callable[[], bool] = never, progress: Progress = no_progress
) -> Iterator[Record]:
    """Train to the end, write model and result into the run directory, and yield the record of each step.

    With several processes, the first one writes. When `stopped` returns True, a checkpoint is written and training
    ends early; it can be resumed to the identical result. Raises DivergedError, which leaves the last good checkpoint
    in place.
    """
    return _train_and_write(job, stopped, progress) if is_first() else _train_only(job, stopped)


def _train_and_write(job: Job, stopped: Callable[[], bool], progress: Progress) -> Iterator[Record]:
    run, config, state = job.run, job.config, job.state
    saved, identity = time.monotonic(), run_identity(config, job.split)
    recorder = Recorder(run, state, config.execution, job.model_info, job.history)
    try:
        for record in train(state, job.split, config.training, progress):
            recorder.add(record)
            job.stopped, due = any_process(stopped(), _checkpoint_is_due(config, state, saved))
            if job.stopped or due:
                state.raise_if_diverged()
                save_checkpoint(run.checkpoints, state, identity=identity)
                saved = time.monotonic()
            yield record
            if job.stopped:
                return
            recorder.reset_memory(record)
        save_checkpoint(run.checkpoints, state, identity=identity)
        save_model(run.model_path, state.ema, job.model_info)
        _write_result(job)
        _remember_speed(job)
    except GeneratorExit:  # the caller stopped iterating: keep the progress
        state.raise_if_diverged()
        save_checkpoint(run.checkpoints, state, identity=identity)
        raise
    except DivergedError as error:
        _write_result(job, error)
        raise
    except OSError as error:
        raise run.write_error(error) from error
    finally:
        recorder.close()
        assert job.lock is not None
        job.lock.release()


def _remember_speed(job: Job) -> None:
    """Let later estimates know how long the steps of this run took, if it was long enough, on one process."""
    speed = speed_of_run(job.history)
    if speed is not None and job.config.training.last_step >= SHORT_RUN and world_size() == 1:
        remember_speed(job.plan, speed)


def _train_only(job: Job, stopped: Callable[[], bool]) -> Iterator[Record]:
    """Take part in the steps of a run that another process writes; stops and fails when that one does."""
    for record in train(job.state, job.split, job.config.training):
        job.stopped, due = any_process(stopped(), False)
        if job.stopped or due:
            job.state.raise_if_diverged()
        yield record
        if job.stopped:
            return


def _checkpoint_is_due(config: Config, state: State, saved: float) -> bool:
    every = config.execution.checkpoint_steps
    due = every is not None and state.step % every == 0
    return due or time.monotonic() - saved >= config.execution.checkpoint_seconds


def _write_result(job: Job, diverged: DivergedError | None = None) -> None:
    history = job.history
    best: dict[str, Any] = next((line for line in reversed(history) if line.get("best")), {})
    last = history[-1] if history and diverged is None else {}
    job.result = result = Result(
        dataset=job.config.dataset,
        method=job.config.method,
        labels=len(job.split.labeled_rows),
        seed=job.config.training.seed,
        steps=job.state.step,
        seconds=round(job.state.seconds, 3),
        **errors_from_json(last),
        best_step=best.get("step"),
        best_val_error=best.get("val_error"),
        best_test_error=best.get("test_error"),
        diverged_at=None if diverged is None else diverged.step,
        diverged_part=None if diverged is None else diverged.part,
    )
    if diverged is None:
        write_atomically(job.run.card_path, to_utf8(model_card(job.config, job.split, result)))
    job.run.finish(result)
