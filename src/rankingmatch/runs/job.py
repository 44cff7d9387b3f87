"""Training a run in its directory: started, or resumed from a checkpoint, until it has a result."""

import contextlib
import copy
import hashlib
import importlib.util
import json
import logging
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.devices import computes_bfloat16, keep_freed_memory, peak_memory, reset_peak_memory
from rankingmatch.core.distributed import (
    any_process,
    first_on_each_machine,
    from_first_process,
    is_first,
    on_all_processes,
)
from rankingmatch.core.errors import ConfigError, DivergedError, RunError, first_line, setting, writing_remedy
from rankingmatch.core.names import to_utf8
from rankingmatch.data import Dataset, Progress, Split, make_split, no_progress, rows_to_json
from rankingmatch.data.files import without_downloads
from rankingmatch.methods import make_method
from rankingmatch.runs.checkpoint import restore_latest, save_checkpoint
from rankingmatch.runs.config import Config, Plan, options_of_kind, setting_options
from rankingmatch.runs.directory import Run
from rankingmatch.runs.model import ModelInfo, save_model
from rankingmatch.runs.result import Result, errors_from_json, model_card
from rankingmatch.training.banks import Computer, computed_here, make_bank
from rankingmatch.training.loop import evaluate, train
from rankingmatch.training.records import Record
from rankingmatch.training.snapshot import share_state
from rankingmatch.training.state import State, initial_state, set_length

log = logging.getLogger(__name__)

# A class with so many times the labels of another is worth a warning: their sizes alone shift the difference of their
# logits by ln 5 = 1.6.
UNEVEN = 5
REMEDY_HINT = "rebalance has remedies, for example crest; balanced draws all classes equally often"
TIMED_STEPS = 5  # of a run that has a time instead of a number of steps
REPORT = 5.0  # seconds to write the report
EVALUATIONS = 20  # of a run, unless their interval is given
LONGEST = 4  # times the usual steps of fine-tuning: more do not lower the error
MOST_STEPS = 10**9


# --- images -------------------------------------------------------------------------------------------------


def load_dataset(plan: Plan, progress: Progress = no_progress) -> Dataset:
    """The images of a plan."""
    data, place = plan.config.data, plan.config.execution.data_dir
    with contextlib.nullcontext() if plan.downloads else without_downloads():
        return plan.source.load(None if place is None else Path(place), data.image_size, progress, crop=data.crop)


def load_split(plan: Plan, progress: Progress = no_progress) -> Split:
    """The images of a plan, with the labels that training may see."""
    return split_dataset(plan, load_dataset(plan, progress))


def split_dataset(plan: Plan, dataset: Dataset) -> Split:
    """The split of a plan's images; raises an error if there are not enough labels for it."""
    config = plan.config
    if config.data.validation and dataset.validation is not None:
        raise ConfigError(
            f"{setting('validation')} is {config.data.validation}, but the data has {len(dataset.validation):,} "
            "validation images already; remove the option"
        )
    return make_split(dataset, config.data, config.training.seed)


def warn_of_unbalanced_labels(split: Split, config: Config) -> None:
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


# --- starting -----------------------------------------------------------------------------------------------


@dataclass
class Job:
    """A run that is ready for training: everything the user can get wrong has been checked."""

    run: Run
    plan: Plan
    split: Split
    state: State
    # Of the first process, what the run directory has, so that it need not be read again:
    environment: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)  # the evaluations so far, as lines of metrics.jsonl
    costs: list[tuple[int, float, int]] = field(default_factory=list)  # of each step, as in steps.csv
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


def start(
    run: Run,
    plan: Plan,
    progress: Progress = no_progress,
    bank_computer: Computer = computed_here,
    deadline: float | None = None,
) -> Job:
    """Load the data and build the state, from the newest checkpoint if there is one; create the run if it is new.

    `bank_computer` may compute a bank elsewhere. With a deadline, in seconds of `time.monotonic`, a new run gets as
    many steps as end before it.
    """
    config = plan.config
    on_all_processes(lambda: _prepare_process(config))
    split = first_on_each_machine(lambda: load_split(plan, progress))
    if is_first():
        warn_of_unbalanced_labels(split, config)
    try:
        state = ready_state(config, split, progress, bank_computer, run)
        if deadline is not None and from_first_process(lambda: not run.exists()):
            steps = on_all_processes(lambda: _steps_until(deadline, state, split, config))
            steps = from_first_process(lambda: steps)
            config = replace(config, training=replace(config.training, steps=steps, epochs=None))
            set_length(state.model, config.network, config.training)
        job = Job(run, replace(plan, config=config), split, state)

        def begin() -> None:
            if run.exists():
                job.environment = run.environment()
                job.history, job.costs = run.go_back(state.step)
            else:
                job.environment = run.create(config)
            run.save_rows(rows_to_json(split))

        on_all_processes(lambda: begin() if is_first() else None)
    except BaseException:
        run.unlock()
        raise
    return job


def ready_state(
    config: Config,
    split: Split,
    progress: Progress = no_progress,
    bank_computer: Computer = computed_here,
    run: Run | None = None,
) -> State:
    """A state that is ready to train: the initial one with its bank and head, or a run's newest checkpoint.

    Only the first process reads and locks the run; all others get its state.
    """
    device = config.device()
    method = make_method(config.method, config.hyperparameters)
    state = on_all_processes(
        lambda: initial_state(split, method, config.network, config.views, config.training, device)
    )
    if config.execution.compile:
        on_all_processes(lambda: _require_compiler(device))
        state.model.backbone.compile(dynamic=False)  # the steps of a run have the same few shapes
    state.bank = first_on_each_machine(lambda: make_bank(state, split, config.views, progress, bank_computer))

    def restore() -> None:
        if run is None or not is_first():
            return
        run.lock()  # before anything else is read or written: two processes may have been started at once
        if run.exists():
            if not run.config().learns_like(config):  # another process may have started it a moment ago
                raise RunError(f"{run.path} holds a run with other settings; choose another {setting('out')}")
            rows = run.split_rows()
            if rows is None and any(run.checkpoints.glob("step-*.json")):
                raise RunError(
                    f"{run.path} has no split.json, so it is not known with which images it was started; start another "
                    f"run with {setting('out')}"
                )
            if rows is not None and rows.fingerprint != split.fingerprint:
                raise RunError(
                    f"the folder has changed since {run.path} was started, and a run can only be resumed with the same "
                    f"images; restore them, or start another run with {setting('out')}"
                )
            restore_latest(run.checkpoints, state, identity=run_identity(config, split))

    on_all_processes(restore)
    share_state(state)
    if state.step == 0 and config.network.initial_head == "fitted":
        from rankingmatch.heads.linear import start_head  # scikit-learn takes a second to import

        fitted = start_head(state, split, config.training.seed, progress)
        if config.training.final_weights == "judged":
            from rankingmatch.training.evidence import try_fine_tuning

            state.verdict = try_fine_tuning(state, split, config.training, fitted, progress)
    return state


def _prepare_process(config: Config) -> None:
    device = config.device()
    if config.execution.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            f"{setting('tensorboard')} needs tensorboard; install it: pip install 'rankingmatch[tensorboard]'"
        )
    if config.execution.threads:
        torch.set_num_threads(config.execution.threads)
    if device.type == "cpu":
        keep_freed_memory()
        if config.training.precision == "bfloat16" and not computes_bfloat16(device) and is_first():
            log.warning(
                "this CPU has no instructions for bfloat16, which makes training several times slower than in float32; "
                "the precision auto uses bfloat16 only where it is faster"
            )
    if device.type == "cuda":  # resuming to identical weights needs deterministic kernels
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False


def _require_compiler(device: torch.device) -> None:
    """Raise ConfigError where torch.compile does not work; it would fail at the first step otherwise."""
    try:
        torch.compile(torch.square)(torch.ones(1, device=device))
    except Exception as error:  # of many kinds, internal to torch
        raise ConfigError(
            f"{setting('compile')} needs torch.compile, which does not work here ({first_line(error)}); install a C++ "
            "compiler, or remove the option"
        ) from error


def _steps_until(deadline: float, state: State, split: Split, config: Config) -> int:
    """How many steps end before a deadline, as measured by a few steps of a copy of the state."""
    timed = copy.deepcopy(state, {id(state.bank): state.bank})
    settings = replace(config.training, stop_after=TIMED_STEPS, evaluate_every=TIMED_STEPS)
    started = time.monotonic()
    times = [record.step_seconds for record in train(timed, split, settings)]
    ending = time.monotonic() - started - sum(times)  # with the head that is fitted at the end, if there is one
    step = statistics.median(times[1:])  # the first step includes warming up
    started = time.monotonic()
    evaluate(timed, split)
    evaluation = time.monotonic() - started
    every = config.training.evaluate_every
    step, evaluations = (step, EVALUATIONS) if every is None else (step + evaluation / every, 0)
    left = deadline - time.monotonic() - ending - evaluations * evaluation - REPORT
    if left < step:
        raise ConfigError(
            f"{setting('minutes')} leaves {max(0.0, left):.1f} seconds for steps, but one takes {step:.1f}; give more "
            f"time, or a smaller {setting('network')}"
        )
    most = LONGEST * config.training.total_steps if config.network.pretrained else MOST_STEPS
    return int(min(most, left / step))


def run_identity(config: Config, split: Split) -> dict[str, Any]:
    """What decides what a run learns: its settings, without paths, and checksums of its images and labeled rows."""
    options = setting_options()
    without = {*options_of_kind("execution", "run"), *(name for name, one in options.items() if one.path)}
    settings = {name: value for name, value in config.settings().items() if name not in without}
    rows = json.dumps([split.labeled_rows.tolist(), split.validation_rows.tolist(), split.images.shape])
    checksum = hashlib.sha256(rows.encode()).hexdigest()[:16]
    return {"method": config.method, **settings, "rows": checksum, "images": split.fingerprint}


# --- training -----------------------------------------------------------------------------------------------


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


def training_records(
    job: Job, stopped: Callable[[], bool] = lambda: False, progress: Progress = no_progress
) -> Iterator[Record]:
    """Train to the end, write model and result into the run directory, and yield the record of each step.

    With several processes, the first one writes. When `stopped` returns True, a checkpoint is written and training
    ends early; it can be resumed to the identical result. Raises DivergedError, which leaves the last good checkpoint
    in place.
    """
    recorder = Recorder(job)
    try:
        for record in train(job.state, job.split, job.config.training, progress):
            recorder.add(record)
            job.stopped, due = any_process(stopped(), recorder.checkpoint_is_due())
            if job.stopped or due:
                recorder.checkpoint()
            yield record
            if job.stopped:
                return
            recorder.reset_memory(record)
        recorder.finish()
    except GeneratorExit:  # the caller stopped iterating: keep the progress
        recorder.checkpoint()
        raise
    except DivergedError as error:
        recorder.finish(error)
        raise
    except OSError as error:  # the disk is full or gone; the last checkpoint is intact
        reason, remedy = error.strerror or error, writing_remedy(error)
        text = f"{job.run.path} cannot be written ({reason}); {remedy}, and resume the run"
        raise RunError(text, resumable=job.run.path) from error
    finally:
        recorder.close()
        job.run.unlock()


class Recorder:
    """What the first process writes into the run directory; the others write nothing."""

    def __init__(self, job: Job) -> None:
        self.job, self.events, self.saved = job, None, time.monotonic()
        self.identity = run_identity(job.config, job.split)
        self.measuring = job.config.execution.measure_steps
        self._steps, self._seconds, self._memory = 0, 0.0, 0  # since the last evaluation; the memory is the peak
        if is_first() and job.config.execution.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # Events of an earlier file after this step are discarded.
            step = job.state.step
            self.events = SummaryWriter(str(job.run.tensorboard_path), purge_step=step + 1 if step else None)
        reset_peak_memory(job.state.device)

    def add(self, record: Record) -> None:
        """Record a step: its cost, TensorBoard events, and an evaluation with the best model so far."""
        if not is_first():
            return
        run, state = self.job.run, self.job.state
        self._steps += 1
        self._seconds += record.step_seconds
        if self.measuring or record.evaluation:
            memory = peak_memory(state.device)
            self._memory = max(self._memory, memory)
            if self.measuring:
                self.job.costs.append(run.append_step(record.step, record.step_seconds, memory))
        if self.events:
            for name, value in _scalars(record).items():
                self.events.add_scalar(name, value, record.step)
        if record.evaluation:
            self.job.history.append(run.append(record, self._seconds / self._steps, self._memory))
            self._steps, self._seconds, self._memory = 0, 0.0, 0
            if record.evaluation.best:
                save_model(run.best_path, state.ema, self.job.model_info)

    def reset_memory(self, record: Record) -> None:
        """Start a new measurement of peak memory, after a step whose peak was recorded."""
        if self.measuring or record.evaluation:
            reset_peak_memory(self.job.state.device)

    def checkpoint_is_due(self) -> bool:
        """Whether so many steps or seconds have passed, on the first process."""
        execution = self.job.config.execution
        due = execution.checkpoint_steps is not None and self.job.state.step % execution.checkpoint_steps == 0
        return is_first() and (due or time.monotonic() - self.saved >= execution.checkpoint_seconds)

    def checkpoint(self) -> None:
        """Write a checkpoint, unless the state is not finite."""
        self.job.state.raise_if_diverged()
        if is_first():
            save_checkpoint(self.job.run.checkpoints, self.job.state, identity=self.identity)
        self.saved = time.monotonic()

    def finish(self, diverged: DivergedError | None = None) -> None:
        """Write the result, and unless training diverged, the model."""
        if not is_first():
            return
        job, history = self.job, self.job.history
        best: dict[str, Any] = next((line for line in reversed(history) if line.get("best")), {})
        last = history[-1] if history and diverged is None else {}
        job.result = Result(
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
            save_checkpoint(job.run.checkpoints, job.state, identity=self.identity)
            save_model(job.run.model_path, job.state.ema, job.model_info)
            write_atomically(
                job.run.card_path, to_utf8(model_card(job.config, job.split, job.result, job.state.verdict))
            )
        job.run.finish(job.result)

    def close(self) -> None:
        """Close the event file."""
        if self.events:
            self.events.close()


def _scalars(record: Record) -> dict[str, float]:
    """The numbers of a record, by the name that TensorBoard shows."""
    values: dict[str, float | None] = {}
    if record.metrics:
        values |= {f"loss/{name}": value for name, value in record.metrics.losses.items()}
        values |= {
            "training/learning_rate": record.metrics.learning_rate,
            "training/images_per_second": record.metrics.images_per_second,
            "pseudo-labels/confident": record.metrics.confident,
            "pseudo-labels/purity": record.metrics.purity,
        }
        shares = enumerate(record.metrics.class_shares or ())
        values |= {f"pseudo-labels of class/{number}": share for number, share in shares}
    if record.evaluation:
        for part, errors in (("validation", record.evaluation.validation), ("test", record.evaluation.test)):
            if errors is not None:
                values |= {f"error/{part}": errors.error, f"balanced error/{part}": errors.balanced_error}
    return {name: value for name, value in values.items() if value is not None}
