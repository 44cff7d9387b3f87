"""What a person, or a program, sees while a run goes on."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import rich.live
import torch
from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from rankingmatch.runs.config import Config
from rankingmatch.data import BENCHMARKS, first_few
from rankingmatch.data import Progress as LoadingProgress
from rankingmatch.core.distributed import count
from rankingmatch.core.errors import Interrupted, RunError
from rankingmatch.runs.job import Job, work
from rankingmatch.runs.predict import Predicted
from rankingmatch.training.records import Metrics, Record
from rankingmatch.runs.directory import Result, Run, flat

SECONDS_BETWEEN_LINES = 30.0


class Display(Protocol):
    """Something that follows a run."""

    def start(self, job: Job) -> None:
        """Before the first step."""

    def update(self, record: Record) -> None:
        """After each step."""

    def close(self) -> None:
        """After the last step, or when training stops for another reason."""


def display_for(*, json_lines: bool = False, quiet: bool = False) -> Display:
    """The display that suits where the output goes."""
    if quiet:
        return Silent()
    if json_lines:
        return JsonLines()
    return Live() if Console(stderr=True).is_terminal else Lines()


class Silent:
    """Shows nothing."""

    def start(self, job: Job) -> None:
        """Nothing."""

    def update(self, record: Record) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class JsonLines(Silent):
    """One JSON object per evaluation, on standard output."""

    def update(self, record: Record) -> None:
        """A line like those of metrics.jsonl."""
        if record.evaluation:
            print(json.dumps({"event": "evaluation", **flat(record)}), flush=True)


class Lines(Silent):
    """A plain line per evaluation, and now and then between them, for logs."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def start(self, job: Job) -> None:
        """What is about to happen."""
        self.say(headline(job))

    def say(self, words: str) -> None:
        """A line, at once."""
        print(words, file=sys.stderr, flush=True)
        self._said = time.monotonic()

    def update(self, record: Record) -> None:
        """Step, losses, pseudo-labels, errors, speed, time left."""
        due = record.evaluation or time.monotonic() - self._said >= SECONDS_BETWEEN_LINES
        if not (due and record.metrics):
            return
        losses = " ".join(f"{name} {value:.3f}" for name, value in record.metrics.losses.items())
        left = record.seconds / record.step * (record.steps - record.step)
        words = [
            f"step {record.step}/{record.steps}",
            losses,
            *pseudo_label_words(record.metrics),
            *error_words(record),
            f"{record.metrics.images_per_second:,.0f} images/s",
            f"{left:.0f} s left",
        ]
        self.say(" | ".join(words))


class Live:
    """A bar and a line of numbers that change in place, for a terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live: rich.live.Live | None = None

    def start(self, job: Job) -> None:
        """What is about to happen, and an empty bar."""
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
        """Move the bar; say how it goes when there are new numbers."""
        self._bar.update(self._task, completed=record.step)
        self._errors = error_words(record) or self._errors
        if record.metrics:
            words = [
                f"loss {record.metrics.losses['total']:.3f}",
                *pseudo_label_words(record.metrics),
                *self._errors,
                f"{record.metrics.images_per_second:,.0f} images/s",
            ]
            assert self._live is not None
            self._live.update(Group(self._bar, Text("  ".join(words))))

    def close(self) -> None:
        """Leave the last state on the screen."""
        if self._live is not None:
            self._live.stop()


def watched(predicted: Iterable[Predicted], count: Callable[[], int | None]) -> Iterator[Predicted]:
    """Predictions as they pass, behind a bar on standard error if that is a terminal; how many there will be is asked
    only then.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield from predicted
        return
    columns = (
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("images,"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, TextColumn("left"), console=console, transient=True) as bar:
        task = bar.add_task("", total=count())
        for some_files in predicted:
            yield some_files
            bar.advance(task, len(some_files.files) + len(some_files.bad))


@contextmanager
def loading_progress() -> Iterator[LoadingProgress]:
    """A bar for each file that is downloaded or folder that is read, on standard error if that is a terminal."""
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns(), TextColumn("{task.completed:,.0f} of {task.fields[of]}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def report(task: str, done: int, total: int | None) -> None:
            if task not in tasks:
                tasks[task] = bars.add_task(task, total=total, of="?" if total is None else f"{total:,}")
            bars.update(tasks[task], completed=done)

        yield report


@contextmanager
def signals_noted() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM only leave a note; the function that is given says whether one has come."""
    signals: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, handler in handlers.items():
            if handler is not signal.SIG_IGN:  # nohup and the like asked not to be disturbed
                signal.signal(number, lambda received, _: signals.append(received))
        yield lambda: bool(signals)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def follow(job: Job, display: Display, how_to_go_on: str) -> None:
    """Train a job to its end before a display.

    SIGINT and SIGTERM are answered after the step under way, with a checkpoint and Interrupted.
    """
    try:
        with signals_noted() as stopped:
            display.start(job)
            for record in work(job, stopped=stopped):
                display.update(record)
    except torch.OutOfMemoryError as error:
        raise RunError("the device is out of memory; lower --batch-size or --mu, or use a smaller --network") from error
    finally:
        display.close()
    if job.stopped:
        raise Interrupted(f"stopped; to go on: {how_to_go_on}")


def introduce(config: Config) -> None:
    """Say what a folder holds and which settings follow from it; a dataset known by name needs no introduction."""
    if config.dataset in BENCHMARKS:
        if Path(config.dataset).is_dir():
            print(f"{config.dataset}: the dataset, not the folder, which is ./{config.dataset}", file=sys.stderr)
        return
    found = config.source
    values = {key: value for part in config.to_json().values() if isinstance(part, dict) for key, value in part.items()}
    words = [f"--{name.replace('_', '-')} {values[name]}" for name in found.preset() if name != "flip"]
    words.append("--flip" if values["flip"] else "--no-flip")
    lines = [f"{config.dataset}: {found.description}", f"settings: {' '.join(words)}"]
    if config.data.labels:
        lines.insert(1, f"--labels {config.data.labels}: so many keep their labels, those of the others are hidden")
    if not found.evaluated and config.data.validation == 0:
        lines.append(
            "no validation or test images, and too few labels to hold some out: only losses and pseudo-labels will "
            "show how it goes"
        )
    elif config.data.validation:
        lines.append(f"no validation images: {config.data.validation:,} of the labeled ones are held out")
    print("\n".join(lines), file=sys.stderr, flush=True)


def headline(job: Job) -> str:
    """What is about to be trained, on what, and where it goes."""
    config, split = job.config, job.split
    height, width, channels = split.images.shape[1:]
    validation = 0 if split.validation is None else len(split.validation)
    test = 0 if split.test is None else len(split.test)
    settings, processes = config.training, count()
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
    """1:02:03, or 2:03; a dash where it is not known."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def pseudo_label_words(metrics: Metrics) -> list[str]:
    """The share of confident pseudo-labels, and how many of them are right."""
    if metrics.confident is None:
        return []
    words = [f"confident {metrics.confident:.0%}"]
    return words if metrics.purity is None else [*words, f"pure {metrics.purity:.1%}"]


def error_words(record: Record) -> list[str]:
    """The errors of an evaluation."""
    if record.evaluation is None:
        return []
    errors = {"val": record.evaluation.validation_error, "test": record.evaluation.test_error}
    return [f"{name} error {error:.2f} %" for name, error in errors.items() if error is not None]


def result_lines(result: Result, run: Run) -> str:
    """The end of a run in words, and what to do next."""
    minutes, seconds = divmod(round(result.seconds), 60)
    skipped = run.skipped()
    words = first_few([f"{file} {reason}" for file, reason in skipped])
    left_out = f"files left out: {words}; all of them are in {run.path / 'split.json'}\n" if skipped else ""
    page = f"page:  {run.report_path}, to be opened in a browser\n" if run.report_path.exists() else ""
    next_steps = [
        *([] if result.test_error is None else [f"evaluate {run.path}    # error by class, what is taken for what"]),
        f"predict {run.path} IMAGES --out predictions.csv",
        f"export {run.path} model.onnx",
    ]
    errors = [
        f"{name} error {error:.2f} %"
        for name, error in (("test", result.test_error), ("validation", result.val_error))
        if error is not None
    ]
    return (
        f"{', '.join(errors) or 'trained'} with {result.labels} labels, "
        f"{result.steps:,} steps in {minutes}:{seconds:02d}\n"
        f"model: {run.model_path}\n"
        f"{page}{left_out}"
        "next:  " + "\n       ".join(f"rankingmatch {step}" for step in next_steps)
    )
