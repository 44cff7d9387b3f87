"""What a person or a program sees while a run is trained."""

import sys
import time
from collections.abc import Iterable, Iterator

import rich.live
from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.text import Text

from rankingmatch.core.distributed import world_size
from rankingmatch.core.names import plain_console, printable, task_column
from rankingmatch.runs.events import print_event
from rankingmatch.runs.job import Display, Job
from rankingmatch.runs.predict import FilePredictions
from rankingmatch.runs.progress import loading_progress
from rankingmatch.runs.result import record_to_json
from rankingmatch.training.records import Metrics, Record

__all__ = ["JsonLines", "LiveDisplay", "LogLines", "Silent", "choose_display"]

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_EVENTS = 1.0


def choose_display(*, json_lines: bool = False, quiet: bool = False) -> Display:
    """The display for where the output goes: nowhere, to a program, to a terminal, or to a log."""
    if quiet:
        return Silent()
    if json_lines:
        return JsonLines()
    return LiveDisplay() if plain_console(stderr=True).is_terminal else LogLines()


class Silent:
    """Shows nothing."""

    def start(self, job: Job) -> None:
        """Show nothing."""

    def update(self, record: Record) -> None:
        """Show nothing."""

    def progress(self, task: str, done: int, total: int | None) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Show nothing."""


class JsonLines(Silent):
    """Prints one JSON object per evaluation, and one per second in between, to standard output."""

    def __init__(self) -> None:
        self._printed = time.monotonic()

    def start(self, job: Job) -> None:
        """Print how many images and steps there are."""
        steps = {"step": job.state.step, "steps": job.config.training.last_step}
        print_event("start", {**steps, **_image_counts(job)})

    def update(self, record: Record) -> None:
        """Print an evaluation, with the keys of metrics.jsonl, or how far the training is."""
        if record.evaluation:
            print_event("evaluation", record_to_json(record))
        elif time.monotonic() - self._printed >= SECONDS_BETWEEN_EVENTS:
            print_event("step", {"step": record.step, "steps": record.steps, "seconds": round(record.seconds, 3)})
        else:
            return
        self._printed = time.monotonic()

    def progress(self, task: str, done: int, total: int | None) -> None:
        """Print what is done between two steps."""
        if time.monotonic() - self._printed >= SECONDS_BETWEEN_EVENTS:
            print_event("loading", {"task": task, "done": done, "total": total})
            self._printed = time.monotonic()


class LogLines(Silent):
    """Prints a line per evaluation, and at least every 30 seconds, to standard error."""

    def __init__(self) -> None:
        self._printed = time.monotonic()
        self._task = ""

    def start(self, job: Job) -> None:
        """Print what is about to be trained."""
        self.print(headline(job))

    def progress(self, task: str, done: int, total: int | None) -> None:
        """Print what is done between two steps, once, and again if it takes long."""
        if task != self._task or time.monotonic() - self._printed >= SECONDS_BETWEEN_LINES:
            self.print(_amount(task, done, total))
            self._task = task

    def print(self, line: str) -> None:
        """Print a line immediately."""
        print(line, file=sys.stderr, flush=True)
        self._printed = time.monotonic()

    def update(self, record: Record) -> None:
        """Print step, losses, pseudo-labels, errors, speed and remaining time, if a line is due."""
        due = record.evaluation or time.monotonic() - self._printed >= SECONDS_BETWEEN_LINES
        if not (due and record.metrics):
            return
        losses = " ".join(f"{name} {value:.3f}" for name, value in record.metrics.losses.items())
        remaining = record.seconds / record.step * (record.steps - record.step)
        parts = [
            f"step {record.step}/{record.steps}",
            losses,
            *describe_pseudo_labels(record.metrics),
            *describe_errors(record),
            f"{record.metrics.images_per_second:,.0f} images/s",
            f"{remaining:.0f} s left",
        ]
        self.print(" | ".join(parts))


class LiveDisplay:
    """A progress bar and a line of numbers that are updated in place, for a terminal."""

    def __init__(self) -> None:
        self._console = plain_console(stderr=True)
        self._live: rich.live.Live | None = None

    def start(self, job: Job) -> None:
        """Print what is about to be trained, and an empty bar."""
        self._console.print(headline(job))
        self._errors: list[str] = []
        self._bar = Progress(
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            task_column("steps,"),
            TimeRemainingColumn(compact=True),
            task_column("left"),
            console=self._console,
        )
        self._task = self._bar.add_task("", total=job.config.training.last_step, completed=job.state.step)
        self._live = rich.live.Live(self._bar, console=self._console, refresh_per_second=5)
        self._live.start()

    def update(self, record: Record) -> None:
        """Move the bar, and show new numbers if there are any."""
        self._bar.update(self._task, completed=record.step)
        self._errors = describe_errors(record) or self._errors
        if record.metrics:
            parts = [
                f"loss {record.metrics.losses['total']:.3f}",
                *describe_pseudo_labels(record.metrics),
                *self._errors,
                f"{record.metrics.images_per_second:,.0f} images/s",
            ]
            assert self._live is not None
            self._live.update(Group(self._bar, Text("  ".join(parts))))

    def progress(self, task: str, done: int, total: int | None) -> None:
        """Show what is done between two steps, below the bar."""
        assert self._live is not None
        self._live.update(Group(self._bar, Text(_amount(task, done, total))))

    def close(self) -> None:
        """Leave the last numbers on the screen."""
        if self._live is not None:
            self._live.stop()


def prediction_progress(batches: Iterable[FilePredictions], total: int | None) -> Iterator[FilePredictions]:
    """Pass predictions on, with a progress bar if standard error is a terminal, and lines in a log."""
    console = plain_console(stderr=True)
    if not console.is_terminal:
        done = 0
        with loading_progress() as progress:
            for batch in batches:
                yield batch
                done += len(batch.files) + len(batch.skipped)
                progress("predicting", done, total)
        return
    columns = (
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        task_column("images,"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, task_column("left"), console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        for batch in batches:
            yield batch
            bar.advance(task, len(batch.files) + len(batch.skipped))


def headline(job: Job) -> str:
    """What is about to be trained, on which data, and where the results go."""
    config, split = job.config, job.split
    height, width, channels = split.images.shape[1:]
    settings, processes = config.training, world_size()
    unlabeled = (
        f" + {settings.batch_size * settings.mu} unlabeled" if job.state.objective.method.unlabeled_views else ""
    )
    return (
        f"{printable(config.dataset)}: {len(split.classes)} classes, {height}×{width}×{channels}; "
        f"{', '.join(f'{number:,} {part}' for part, number in _image_counts(job).items())}\n"
        f"{config.method} with {config.network.network}: {settings.last_step:,} steps of "
        f"{settings.batch_size} labeled{unlabeled} images, seed {settings.seed}"
        f"{f', on {processes} processes' if processes > 1 else ''}"
        f" → {printable(str(job.run.path))}{f', from step {job.state.step}' if job.state.step else ''}"
    )


def _image_counts(job: Job) -> dict[str, int]:
    split = job.split
    return {
        "labeled": len(split.labeled_rows),
        "unlabeled": len(split.unlabeled_rows),
        "validation": 0 if split.validation is None else len(split.validation),
        "test": 0 if split.test is None else len(split.test),
    }


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


def _amount(task: str, done: int, total: int | None) -> str:
    return task if total is None else f"{task}: {done:,} of {total:,} images"


def describe_pseudo_labels(metrics: Metrics) -> list[str]:
    """The share of confident pseudo-labels, and how many of them are correct."""
    if metrics.confident is None:
        return []
    parts = [f"confident {metrics.confident:.0%}"]
    return parts if metrics.purity is None else [*parts, f"correct {metrics.purity:.1%}"]


def describe_errors(record: Record) -> list[str]:
    """The errors of an evaluation."""
    if record.evaluation is None:
        return []
    parts = {"val": record.evaluation.validation, "test": record.evaluation.test}
    return [f"{name} error {errors.error:.2f}%" for name, errors in parts.items() if errors is not None]
