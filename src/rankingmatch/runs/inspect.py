"""A look at runs: what they recorded and what their models say, gathered for the report."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from rankingmatch.core.atomic import write_atomically
from rankingmatch.runs.checkpoint import ModelCard, load_model
from rankingmatch.runs.config import Config, repeat_command
from rankingmatch.data import Split
from rankingmatch.core.errors import ConfigError, DataError, RankingMatchError, RunError
from rankingmatch.runs.job import load_split
from rankingmatch.networks import Classifier, outputs
from rankingmatch.report import Predictions as Outputs
from rankingmatch.report import RunData as Subject
from rankingmatch.report import Status, page_content, render_page, runs_in_detail
from rankingmatch.report.figures import draw_figures, require_plotting
from rankingmatch.report.sampling import sample
from rankingmatch.runs.directory import Run

AUDITED = 10_000  # unlabeled images that are looked at


def write_report(
    paths: Sequence[Path],
    out: Path | None = None,
    *,
    figures: Path | None = None,
    device: str | None = None,
    audited: int = AUDITED,
) -> Path:
    """Write the page of one or several runs, and the figures if a folder is said; returns where the page is.

    The page of one run belongs into its directory, that of several into report.html here. At most `audited` unlabeled
    images are looked at, drawn at random.
    """
    runs = [Run(path) for path in dict.fromkeys(paths)]
    if not runs:
        raise ConfigError("which run? give its directory, such as: rankingmatch report runs/mine")
    target = out or (runs[0].report_path if len(runs) == 1 else Path("report.html"))
    if out is not None and (target.is_dir() or not target.parent.is_dir()):
        reason = "it is a directory" if target.is_dir() else f"there is no directory {target.parent}"
        raise ConfigError(f"--out {target}: {reason}; name a file")
    if figures is not None:
        require_plotting()
        if not figures.parent.is_dir():
            raise ConfigError(f"--figures {figures}: there is no directory {figures.parent}")
    configs = [run.config() for run in runs]
    subjects = _named([_recorded(run, config) for run, config in zip(runs, configs, strict=True)])
    for place in runs_in_detail(subjects):
        config = configs[place]
        config = replace(config, execution=replace(config.execution, device=device or config.execution.device))
        subjects[place] = _with_outputs(runs[place], config, subjects[place], audited)
    content = page_content(subjects)
    if figures is not None:
        figures.mkdir(exist_ok=True)
        draw_figures(content, figures)
    write_atomically(target, render_page(content).encode())
    return target


def _named(subjects: list[Subject]) -> list[Subject]:
    """Each called by its method and by what else tells the runs apart; by its directory where that is not enough."""
    words: list[list[str]] = [[subject.method] for subject in subjects]
    if len({subject.dataset for subject in subjects}) > 1:
        words = [[*mine, subject.dataset] for mine, subject in zip(words, subjects, strict=True)]
    if len({subject.labels for subject in subjects}) > 1:
        words = [[*mine, f"{subject.labels} labels"] for mine, subject in zip(words, subjects, strict=True)]
    if len({subject.seed for subject in subjects}) > 1:
        words = [[*mine, f"seed {subject.seed}"] for mine, subject in zip(words, subjects, strict=True)]
    names = [", ".join(mine) for mine in words]
    for other in ([subject.place for subject in subjects], [str(number + 1) for number in range(len(subjects))]):
        if len(set(names)) < len(names):
            names = other if len(set(other)) == len(other) else names
    return [replace(subject, name=name) for subject, name in zip(subjects, names, strict=True)]


def _recorded(run: Run, config: Config) -> Subject:
    """What a run directory says by itself, without its model."""
    result, history = run.result(), run.history()
    last: dict[str, Any] = history[-1] if history else {}
    status = Status.UNDER_WAY
    if result is not None:
        status = Status.FINISHED if result.diverged_at is None else Status.DIVERGED
    return Subject(
        name=config.method,
        place=run.path.resolve().name,
        dataset=config.dataset,
        method=config.method,
        labels=result.labels if result else run.label_count() or config.data.labels or 0,
        seed=config.training.seed,
        classes=(),
        status=status,
        steps=config.training.last_step,
        command=repeat_command(config),
        environment=run.environment(),
        settings=_settings(config),
        history=history,
        step_costs=run.step_costs(),
        threshold=config.hyperparameters.get("threshold"),
        test_error=result.test_error if result else last.get("test_error"),
        val_error=result.val_error if result else last.get("val_error"),
        seconds=result.seconds if result else last.get("seconds"),
        diverged_at=result.diverged_at if result else None,
        diverged_part=result.diverged_part if result else None,
    )


def _settings(config: Config) -> dict[str, Any]:
    """What a run learned with, by the names of the flags."""
    rooms = (config.data, config.views, config.network, config.training)
    values = {**config.hyperparameters, **{name: value for room in rooms for name, value in asdict(room).items()}}
    words = {True: "on", False: "off"}
    return {
        name.replace("_", "-"): words[value] if isinstance(value, bool) else value
        for name, value in values.items()
        if value is not None
    }


def _with_outputs(run: Run, config: Config, subject: Subject, audited: int) -> Subject:
    """The subject with what the run's model says; with a note where there is no model, or no data any more."""
    try:
        split = load_split(config)
    except (DataError, ConfigError) as error:
        classes = tuple(map(str, range(_class_count(subject))))
        return _noted(replace(subject, classes=classes), f"The images cannot be read ({error}).")
    subject = replace(subject, classes=split.classes, unlabeled_total=len(split.unlabeled_rows))
    place = config.execution.torch_device()
    try:
        model, card, weights = _model(run, subject, place)
    except RankingMatchError as error:
        return _noted(subject, f"The outputs cannot be shown: {error}.")
    if (card.classes, (card.height, card.width, card.channels)) != (split.classes, split.images.shape[1:]):
        return _noted(subject, "The outputs cannot be shown: the dataset is no longer the one that was trained on.")
    judged = _judged(model, split, place)
    rows = split.unlabeled_rows[sample(len(split.unlabeled_rows), audited)]
    unlabeled = None
    if len(rows):
        unlabeled = model_outputs(model, "unlabeled", split.images[rows], split.truth[rows], place, rows)
    if judged is None:
        subject = _noted(subject, "There are no test images: what is shown is of unlabeled images.")
    elif judged.part == "validation":
        subject = _noted(subject, "There are no test images: what is shown is of validation images.")
    return replace(subject, judged=judged or unlabeled, unlabeled=unlabeled, weights=weights)


def _noted(subject: Subject, note: str) -> Subject:
    return replace(subject, notes=(*subject.notes, note))


def _class_count(subject: Subject) -> int:
    return max((len(line.get("class_shares") or ()) for line in subject.history), default=0)


def _model(run: Run, subject: Subject, place: torch.device) -> tuple[Classifier, ModelCard, str]:
    """The final model, or, of a run that has none, the one best on validation so far; and which it is in words."""
    if subject.status is Status.FINISHED:
        return *run.load_model(place), f"the averaged weights of step {subject.step:,}, the last"
    if not run.best_path.exists():
        raise RunError("there is no model yet")
    best = max((line["step"] for line in subject.history if line.get("best")), default=0)
    words = f"the averaged weights best on validation so far, of step {best:,}"
    return *load_model(run.best_path, place), words


def _judged(model: nn.Module, split: Split, place: torch.device) -> Outputs | None:
    """What the model says of test images, or of validation images where there are no others."""
    for part, images in (("test", split.test), ("validation", split.validation)):
        if images is not None and len(images):
            return model_outputs(model, part, images.images, images.labels, place, np.arange(len(images)))
    return None


def model_outputs(
    model: nn.Module, part: str, images: np.ndarray, truth: np.ndarray, place: torch.device, rows: np.ndarray
) -> Outputs:
    """The outputs of a model for images, as arrays."""
    logits, features = [], []
    for output in outputs(model, images, place):
        logits.append(output.logits.float().cpu().numpy())
        if output.features is not output.logits:
            features.append(output.features.float().cpu().numpy())
    together = np.concatenate(features) if features else None
    return Outputs(part, images, rows, truth, np.concatenate(logits), together)
