"""A run carried out: begun, or taken up again, and worked on to its result."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from filelock import FileLock

from rankingmatch.core.atomic import write_atomically
from rankingmatch.runs.checkpoint import ModelCard, restore_latest, save_checkpoint, save_model, share_state
from rankingmatch.runs.config import Config
from rankingmatch.data import Dataset, Split, make_split, rows_to_json
from rankingmatch.core.distributed import any_of, first_of_machine_first, is_first, together
from rankingmatch.core.errors import ConfigError, DivergedError
from rankingmatch.runs.tensorboard import Events, require_tensorboard
from rankingmatch.core.memory import peak_memory, reset_peak_memory
from rankingmatch.methods import make_method
from rankingmatch.runs.model_card import model_card
from rankingmatch.training.records import Record
from rankingmatch.runs.directory import Result, Run
from rankingmatch.training.state import State, initial_state
from rankingmatch.training.loop import train

log = logging.getLogger(__name__)

UNEVEN = 5  # times as many labels as another class has are worth a warning


def load_dataset(config: Config) -> Dataset:
    """The images that a configuration asks for."""
    from rankingmatch.runs.display import loading_progress

    with loading_progress() as progress:
        return config.source.load(config.execution.data_path(), config.data.image_size, progress)


def load_split(config: Config) -> Split:
    """The images and labels that a configuration asks for."""
    dataset = load_dataset(config)
    if config.data.validation and dataset.validation is not None:
        raise ConfigError(
            f"--validation {config.data.validation}: there are {len(dataset.validation):,} validation images already; "
            "leave the flag out"
        )
    split = make_split(dataset, config.data, config.training.seed)
    counts = np.bincount(split.labels[split.labeled_rows], minlength=len(split.classes))
    few, many = int(counts.argmin()), int(counts.argmax())
    if counts[many] >= UNEVEN * counts[few] and not config.data.balanced:
        log.warning(
            "the labels are uneven: '%s' has %d, '%s' has %d; --balanced draws all classes equally often",
            *(split.classes[few], counts[few], split.classes[many], counts[many]),
        )
    return split


@dataclass
class Job:
    """A run ready to be worked on: nothing that the user got wrong can come up after this."""

    run: Run
    config: Config
    split: Split
    state: State
    lock: FileLock | None  # of several processes, the first one has it
    stopped: bool = False  # before its end, with a checkpoint


def begin(run: Run, config: Config) -> Job:
    """Load the data and build the state, from the newest checkpoint if there is one; create the run if it is new."""
    device = together(lambda: _prepared_device(config))
    split = first_of_machine_first(lambda: load_split(config))
    method = make_method(config.method, config.hyperparameters)
    state = together(lambda: initial_state(split, method, config.network, config.views, config.training, device))
    if config.execution.compile:
        together(lambda: _refuse_to_compile_in_vain(device))
        state.model.backbone.compile()
    lock = together(lambda: _opened(run, config, split, state) if is_first() else None)
    share_state(state)
    return Job(run, config, split, state, lock)


def _prepared_device(config: Config) -> torch.device:
    device = config.execution.torch_device()
    if config.execution.tensorboard:
        require_tensorboard()
    if config.execution.threads:
        torch.set_num_threads(config.execution.threads)
    if device.type == "cuda":  # resuming to the same bits needs kernels that always compute the same
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    return device


def _refuse_to_compile_in_vain(device: torch.device) -> None:
    """Raise ConfigError where torch.compile does not work; it would say so at the first step only."""
    try:
        torch.compile(torch.square)(torch.ones(1, device=device))
    except Exception as error:  # of many kinds, all of them of torch's insides
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"--compile: torch.compile does not work here ({reason}); install a C++ compiler, or leave the flag out"
        ) from error


def _opened(run: Run, config: Config, split: Split, state: State) -> FileLock:
    """Take the run directory, which is made if it is new, and put the state to its newest checkpoint."""
    lock = run.lock()  # before anything else is written or looked at: two may have been started at once
    is_new = not run.exists()
    if is_new:
        run.create(config)
    else:
        run.refuse_other_settings(config)
        run.refuse_other_images(split.fingerprint)
    run.save_rows(rows_to_json(split))
    if not is_new:
        restore_latest(run.checkpoints, state)
        run.keep_history_until(state.step)
    return lock


@dataclass
class Costs:
    """What the steps since the last evaluation cost."""

    steps: int = 0
    seconds: float = 0.0
    memory: int = 0  # bytes at the peak, with the evaluation at the end

    def add(self, seconds: float, memory: int) -> None:
        """Take in a step."""
        self.steps += 1
        self.seconds += seconds
        self.memory = max(self.memory, memory)


def never() -> bool:
    """A run that nobody stops."""
    return False


def work(job: Job, stopped: Callable[[], bool] = never) -> Iterator[Record]:
    """Train to the end and leave model and result in the run directory; yields the loop's records.

    Of several processes the first one writes, the others only train along.
    When `stopped` says so, a checkpoint is written and training ends early; it can be taken up again to the
    identical result. Raises DivergedError, with the last good checkpoint left in place.
    """
    return _work_and_write(job, stopped) if is_first() else _train_along(job, stopped)


def _work_and_write(job: Job, stopped: Callable[[], bool]) -> Iterator[Record]:
    run, config, state = job.run, job.config, job.state
    saved = time.monotonic()
    diary = _Diary(job)
    try:
        for record in train(state, job.split, config.training):
            diary.enter(record)
            job.stopped, due = any_of(stopped(), _checkpoint_is_due(config, state, saved))
            if job.stopped or due:
                state.raise_if_diverged()
                save_checkpoint(run.checkpoints, state)
                saved = time.monotonic()
            yield record
            if job.stopped:
                return
            diary.turn_page(record)
        save_checkpoint(run.checkpoints, state)
        save_model(run.model_path, state.ema, _card(job))
        _write_result(job)
    except GeneratorExit:  # the caller broke off, for whatever reason: keep what there is
        state.raise_if_diverged()
        save_checkpoint(run.checkpoints, state)
        raise
    except DivergedError as error:
        _write_result(job, error)
        raise
    except OSError as error:
        raise run.cannot_be_written(error) from error
    finally:
        diary.close()
        assert job.lock is not None
        job.lock.release()


class _Diary:
    """What a run writes down as it goes on: its history, measured steps, events, and the model best on validation."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.costs = Costs()
        self.events = Events(job.run.events, job.state.step) if job.config.execution.tensorboard else None
        reset_peak_memory(job.state.device)

    def enter(self, record: Record) -> None:
        """Write down a step."""
        run, state, measuring = self.job.run, self.job.state, self.job.config.execution.measure_steps
        memory = peak_memory(state.device) if measuring or record.evaluation else 0
        self.costs.add(record.step_seconds, memory)
        if measuring:
            run.append_step(record.step, record.step_seconds, memory)
        if self.events:
            self.events.add(record)
        if record.evaluation:
            run.append(record, self.costs.seconds / self.costs.steps, self.costs.memory)
            self.costs = Costs()
            if record.evaluation.best:
                save_model(run.best_path, state.ema, _card(self.job))

    def turn_page(self, record: Record) -> None:
        """From here on, memory counts for what comes next."""
        if self.job.config.execution.measure_steps or record.evaluation:
            reset_peak_memory(self.job.state.device)

    def close(self) -> None:
        """Let go of the event file."""
        if self.events:
            self.events.close()


def _card(job: Job) -> ModelCard:
    height, width, channels = job.split.images.shape[1:]
    return ModelCard(job.config.network.network, job.split.classes, channels, height, width)


def _train_along(job: Job, stopped: Callable[[], bool]) -> Iterator[Record]:
    """Take part in the steps of a run that another process writes; it stops, and fails, where that one does."""
    for record in train(job.state, job.split, job.config.training):
        job.stopped, due = any_of(stopped(), False)
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
    if diverged is None:
        write_atomically(job.run.card_path, model_card(job.config, job.split, result).encode())
    job.run.finish(result)
