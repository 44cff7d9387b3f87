"""What a person or a program sees while a run is trained."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import rich.live
from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from rankingmatch.core.distributed import world_size
from rankingmatch.core.formats import FORMATS
from rankingmatch.data import Progress as LoadingProgress
from rankingmatch.data import no_progress
from rankingmatch.runs.directory import record_to_json
from rankingmatch.runs.job import Display, Job
from rankingmatch.runs.predict import FilePredictions
from rankingmatch.training.records import Metrics, Record

__all__ = ["JsonLines", "LiveDisplay", "LogLines", "Silent", "choose_display"]

SECONDS_BETWEEN_LINES = 30.0


def choose_display(*, json_lines: bool = False, quiet: bool = False) -> Display:
    """The display for where the output goes: nowhere, to a program, to a terminal, or to a log."""
    if quiet:
        return Silent()
    if json_lines:
        return JsonLines()
    return LiveDisplay() if Console(stderr=True).is_terminal else LogLines()


class Silent:
    """Shows nothing."""

    def start(self, job: Job) -> None:
        """Show nothing."""

    def update(self, record: Record) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Show nothing."""


class JsonLines(Silent):
    """Prints one JSON object per evaluation to standard output."""

    def update(self, record: Record) -> None:
        """Print an evaluation, with the keys of metrics.jsonl."""
        if record.evaluation:
            print_event("evaluation", record_to_json(record))


class LogLines(Silent):
    """Prints a line per evaluation, and at least every 30 seconds, to standard error."""

    def __init__(self) -> None:
        self._printed = time.monotonic()

    def start(self, job: Job) -> None:
        """Print what is about to be trained."""
        self.print(headline(job))

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
        self._console = Console(stderr=True)
        self._live: rich.live.Live | None = None

    def start(self, job: Job) -> None:
        """Print what is about to be trained, and an empty bar."""
        self._console.print(headline(job), highlight=False)
        self._errors: list[str] = []
        self._bar = Progress(
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("steps,"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
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

    def close(self) -> None:
        """Leave the last numbers on the screen."""
        if self._live is not None:
            self._live.stop()


@contextmanager
def loading_progress(*, quiet: bool = False) -> Iterator[LoadingProgress]:
    """Show progress bars for downloading and reading images, if standard error is a terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield no_progress
        return
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(task: str, done: int, total: int | None) -> None:
            if task not in tasks:
                tasks[task] = bars.add_task(task, total=total)
            bars.update(tasks[task], completed=done, total=total)

        yield show


def prediction_progress(
    batches: Iterable[FilePredictions], total: Callable[[], int | None]
) -> Iterator[FilePredictions]:
    """Pass predictions on, with a progress bar if standard error is a terminal; `total` is called only then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield from batches
        return
    columns = (
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("images,"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, TextColumn("left"), console=console, transient=True) as bar:
        task = bar.add_task("", total=total())
        for batch in batches:
            yield batch
            bar.advance(task, len(batch.files) + len(batch.skipped))


def print_event(event: str, values: dict[str, object]) -> None:
    """Print a JSON object for programs."""
    print(json.dumps({"event": event, "format": FORMATS["metrics"], **values}), flush=True)


def headline(job: Job) -> str:
    """What is about to be trained, on which data, and where the results go."""
    config, split = job.config, job.split
    height, width, channels = split.images.shape[1:]
    validation = 0 if split.validation is None else len(split.validation)
    test = 0 if split.test is None else len(split.test)
    settings, processes = config.training, world_size()
    unlabeled = (
        f" + {settings.batch_size * settings.mu} unlabeled" if job.state.objective.method.unlabeled_views else ""
    )
    return (
        f"{config.dataset}: {len(split.classes)} classes, {height}×{width}×{channels}; "
        f"{len(split.labeled_rows):,} labeled, {len(split.unlabeled_rows):,} unlabeled, "
        f"{validation:,} validation, {test:,} test\n"
        f"{config.method} with {config.network.network}: {settings.last_step:,} steps of "
        f"{settings.batch_size} labeled{unlabeled} images, seed {settings.seed}"
        f"{f', on {processes} processes' if processes > 1 else ''}"
        f" → {job.run.path}{f', from step {job.state.step}' if job.state.step else ''}"
    )


def duration(seconds: float | None) -> str:
    """1:02:03, or 2:03; a dash if it is not known."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


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
    errors = {"val": record.evaluation.validation_error, "test": record.evaluation.test_error}
    return [f"{name} error {error:.2f} %" for name, error in errors.items() if error is not None]
