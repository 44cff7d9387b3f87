"""What a person or a program sees of work that takes long: bars on a terminal, lines in a log, or JSON."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from rankingmatch.core.distributed import world_size
from rankingmatch.core.names import plain_console, printable, task_column
from rankingmatch.core.untrusted import FORMATS
from rankingmatch.data import Progress, Split
from rankingmatch.runs.config import Config
from rankingmatch.runs.result import record_to_json
from rankingmatch.training.records import Record
from rankingmatch.training.state import State

if TYPE_CHECKING:
    from rankingmatch.runs.job import Job

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_EVENTS = 1.0
PATIENCE = 2.0  # seconds after which a log says what is being done


class Display:
    """Shows nothing; those below show the training of a run, and other work that takes long."""

    def progress(self, task: str, done: int, total: int | None) -> None:
        """Show how far a task is; it is a `Progress`."""

    def start(self, job: "Job") -> None:
        """Show what is about to be trained."""

    def update(self, record: Record) -> None:
        """Show a step."""

    def close(self) -> None:
        """End what is updated in place; the display can still be used."""


class JsonLines(Display):
    """One JSON object for each evaluation, and one per second in between, on standard output."""

    def __init__(self) -> None:
        self._printed = time.monotonic()

    def _is_due(self) -> bool:
        due = time.monotonic() - self._printed >= SECONDS_BETWEEN_EVENTS
        self._printed = time.monotonic() if due else self._printed
        return due

    def progress(self, task: str, done: int, total: int | None) -> None:
        """Print how far a task is."""
        if self._is_due():
            print_event("loading", {"task": task, "done": done, "total": total})

    def start(self, job: "Job") -> None:
        """Print how many images and steps there are."""
        steps = {"step": job.state.step, "steps": job.state.last_step(job.config.training)}
        print_event("start", {**steps, **_image_counts(job.split)})

    def update(self, record: Record) -> None:
        """Print an evaluation, with the keys of metrics.jsonl, or how far the training is."""
        if record.evaluation:
            verdict = {"verdict": record.verdict} if record.verdict else {}
            print_event("evaluation", {**record_to_json(record), **verdict})
            self._printed = time.monotonic()
        elif self._is_due():
            print_event("step", {"step": record.step, "steps": record.steps, "seconds": round(record.seconds, 3)})


class LogLines(Display):
    """Lines on standard error: for each evaluation and at least every 30 seconds, and for tasks that take long."""

    def __init__(self) -> None:
        self._printed = time.monotonic()
        self._task: tuple[str, int, int | None] | None = None  # under way
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def print(self, line: str) -> None:
        """Print a line at once."""
        print(line, file=sys.stderr, flush=True)
        self._printed = time.monotonic()

    def progress(self, task: str, done: int, total: int | None) -> None:
        """Remember what is under way, which a thread prints if it takes long."""
        self._task = None if total is not None and done >= total else (task, done, total)
        if self._thread is None:
            self._closed.clear()
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        last, due = "", 0.0
        while not self._closed.wait(PATIENCE):
            task, done, total = self._task or ("", 0, None)
            if task != last:
                last, due = task, 0.0
            elif task and time.monotonic() >= due:
                self.print(f"{task}: {done:,} of {total:,}" if total is not None else f"{task} …")
                due = time.monotonic() + SECONDS_BETWEEN_LINES

    def start(self, job: "Job") -> None:
        """Print what is about to be trained."""
        self.print(headline(job.config, job.split, job.state, job.run.path))

    def update(self, record: Record) -> None:
        """Print step, losses, pseudo-labels, errors, speed and remaining time, if a line is due."""
        due = record.evaluation or time.monotonic() - self._printed >= SECONDS_BETWEEN_LINES
        if due and record.metrics:
            losses = " ".join(f"{name} {value:.3f}" for name, value in record.metrics.losses.items())
            left = record.seconds / record.step * (record.steps - record.step)
            numbers = _numbers(record)
            self.print(" | ".join([f"step {record.step}/{record.steps}", losses, *numbers, f"{duration(left)} left"]))
        if record.verdict:
            self.print(record.verdict)

    def close(self) -> None:
        """Print no more lines about tasks."""
        if self._thread is not None:
            self._closed.set()
            self._thread.join()
        self._task = self._thread = None


class LiveDisplay(Display):
    """A bar for each task and for the steps, with the latest numbers below, on a terminal."""

    def __init__(self) -> None:
        self._console = plain_console(stderr=True)
        self._bars: _Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._errors: list[str] = []
        self._verdict = ""

    def progress(self, task: str, done: int, total: int | None) -> None:
        """Move the bar of a task; when all tasks are finished, the bars disappear."""
        if self._bars is None:
            columns = (task_column(), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
            self._bars = _Bars(*columns, task_column("left"), console=self._console, transient=True)
            self._bars.start()
        if task not in self._tasks:
            self._tasks[task] = self._bars.add_task(task, total=total)
        self._bars.update(self._tasks[task], completed=done, total=total)
        if self._bars.finished:
            self.close()

    def start(self, job: "Job") -> None:
        """Print what is about to be trained, and an empty bar."""
        self._console.print(headline(job.config, job.split, job.state, job.run.path))
        self.progress("steps", job.state.step, job.state.last_step(job.config.training))

    def update(self, record: Record) -> None:
        """Move the bar of the steps, and show new numbers if there are any."""
        if record.metrics and self._bars is not None:
            self._errors = _errors(record) or self._errors
            total = f"loss {record.metrics.losses['total']:.3f}"
            self._bars.numbers = "  ".join([total, *_numbers(record, self._errors)])
        self._verdict = record.verdict
        self.progress("steps", record.step, record.steps)

    def close(self) -> None:
        """Remove the bars, and leave the last numbers on the screen."""
        if self._bars is not None:
            self._bars.stop()
            for line in filter(None, (self._bars.numbers, self._verdict)):
                self._console.print(line)
        self._bars, self._tasks = None, {}


class _Bars(RichProgress):
    numbers = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars, and below them the numbers."""
        yield from super().get_renderables()
        yield Text(self.numbers)


def choose_display(*, json_lines: bool = False, quiet: bool = False) -> Display:
    """The display for where the output goes: nowhere, to a program, to a terminal, or to a log."""
    if quiet:
        return Display()
    if json_lines:
        return JsonLines()
    return LiveDisplay() if plain_console(stderr=True).is_terminal else LogLines()


@contextmanager
def loading_progress(*, json_lines: bool = False, quiet: bool = False) -> Iterator[Progress]:
    """Show the progress of work that takes long."""
    display = choose_display(json_lines=json_lines, quiet=quiet)
    try:
        yield display.progress
    finally:
        display.close()


def print_event(event: str, values: dict[str, object]) -> None:
    """Print a JSON object for programs."""
    print(json.dumps({"event": event, "format": FORMATS["metrics"], **values}), flush=True)


def headline(config: Config, split: Split, state: State, path: Path | None = None) -> str:
    """What is about to be trained, on which data, where it is written, and how to stop it if Ctrl-C does not."""
    settings, (height, width, channels) = config.training, split.images.shape[1:]
    unlabeled = settings.batch_size * settings.mu if state.objective.method.unlabeled_views else 0
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    how_to_stop = f"\nCtrl-C is ignored, as always in the background of a script; to stop (SIGTERM): kill {os.getpid()}"
    return (
        f"{printable(config.dataset)}: {len(split.classes)} classes, {height}×{width}×{channels}; "
        f"{', '.join(f'{number:,} {part}' for part, number in _image_counts(split).items())}\n"
        f"{config.method} with {config.network.network}: {state.last_step(settings):,} steps of "
        f"{settings.batch_size} labeled{f' + {unlabeled} unlabeled' if unlabeled else ''} images, seed {settings.seed}"
        f"{f', on {world_size()} processes' if world_size() > 1 else ''}"
        f"{f', from step {state.step}' if state.step else ''}"
        f"{f' → {printable(str(path))}' if path else ''}{how_to_stop if path and ignored else ''}"
    )


def duration(seconds: float | None) -> str:
    """2:03, 1:02:03, 5 days or 17 years; a dash if it is not known."""
    if seconds is None:
        return "–"
    for unit, length in (("years", 365.25 * 86400), ("days", 86400.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _image_counts(split: Split) -> dict[str, int]:
    evaluated = {"validation": split.validation, "test": split.test}
    counts = {name: 0 if images is None else len(images) for name, images in evaluated.items()}
    return {"labeled": len(split.labeled_rows), "unlabeled": len(split.unlabeled_rows), **counts}


def _numbers(record: Record, errors: list[str] | None = None) -> list[str]:
    """The share of confident pseudo-labels and how many of them are correct, errors, and speed."""
    metrics = record.metrics
    assert metrics is not None
    shares = {"confident {:.0%}": metrics.confident, "correct {:.1%}": metrics.purity}
    return [
        *(text.format(share) for text, share in shares.items() if share is not None),
        *(_errors(record) if errors is None else errors),
        f"{metrics.images_per_second:,.0f} images/s",
    ]


def _errors(record: Record) -> list[str]:
    if record.evaluation is None:
        return []
    parts = {"val": record.evaluation.validation, "test": record.evaluation.test}
    return [f"{name} error {errors.error:.2f}%" for name, errors in parts.items() if errors is not None]
