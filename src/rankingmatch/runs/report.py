"""What runs have recorded and what their models predict, collected for the report."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankingmatch.core.atomic import write_atomically, write_output
from rankingmatch.core.distributed import alone
from rankingmatch.core.errors import ConfigError, DataError, RankingMatchError, RunError, setting
from rankingmatch.core.names import to_utf8
from rankingmatch.data import Images, Progress, Source, Split, no_progress, under_way
from rankingmatch.networks import Classifier, predict_logits_and_features
from rankingmatch.networks.onnx import accelerated
from rankingmatch.report import Predictions, RunData, Status, page_content, render_page, runs_in_detail
from rankingmatch.report.run_data import sample
from rankingmatch.runs.config import Config, options_of_kind, plan_of, repeat_command
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import Job, load_split
from rankingmatch.runs.model import load_model
from rankingmatch.runs.result import Result, errors_from_json

log = logging.getLogger(__name__)

AUDITED = 10_000  # unlabeled images to look at, at most


def write_report(
    paths: Sequence[Path],
    out: Path | None = None,
    *,
    figures: Path | None = None,
    device: str | None = None,
    audited: int = AUDITED,
    points: int | None = None,
    progress: Progress = no_progress,
) -> Path:
    """Write the report page of one or several runs, and return its path.

    By default, it is report.html in the directory of a single run, or in the current directory. `figures` is a
    directory for each figure as PNG and SVG, `audited` the number of unlabeled images to look at, at most, and
    `points` that of a map of images: by default 2000, and fewer for several runs.
    """
    runs = [Run(path) for path in dict.fromkeys(paths)]
    if not runs:
        raise ConfigError("a report needs at least one run directory")
    target = out or (runs[0].report_path if len(runs) == 1 else Path("report.html"))
    for run in runs if out is not None else ():
        run.require_output(target)
    if figures is not None:
        from rankingmatch.report.figures import draw_figures, require_plotting

        require_plotting()
        if not figures.parent.is_dir():
            raise ConfigError(f"{setting('figures')} {figures}: there is no directory {figures.parent}")
    runs_data = []
    for run in runs:  # what the files say, without the models
        data = _run_data(run, run.config(), run.result(), run.history(), run.environment(), run.step_costs())
        rows = run.split_rows() if data.status is Status.UNDER_WAY else None
        runs_data.append(data if rows is None else replace(data, labels=len(rows.labeled)))
    runs_data = _with_names(runs_data)
    for index in runs_in_detail(runs_data):
        with under_way(progress, f"writing the report: predictions of {runs_data[index].name}"):
            runs_data[index] = _with_files(runs[index], runs_data[index], device, audited)
    content = page_content(runs_data, points, progress)
    if figures is not None:
        figures.mkdir(exist_ok=True)
        with under_way(progress, "writing the figures"):
            draw_figures(content, figures)
    write = write_atomically if out is None else write_output
    write(target, to_utf8(render_page(content)))
    return target


def write_own_report(run: Run, job: Job | None, progress: Progress = no_progress) -> None:
    """Write the report of a run that has just ended, from the images and the model that are still in memory.

    Without a job, that of a finished run that has none, because it was stopped while it wrote it or ran without. A
    failure is only logged: it must not spoil the run. Of several processes, the first one does it alone.
    """
    try:
        with alone():
            if job is None:
                if not run.report_path.exists():
                    write_report([run.path], progress=progress)
                return
            with under_way(progress, "writing the report: predictions"):
                costs = np.array(job.costs).reshape(-1, 3)
                data = _run_data(run, job.config, job.result, job.history, job.environment, costs, job.plan.source)
                model = job.state.ema if data.status is Status.FINISHED else None
                data = _with_predictions(run, data, job.split, job.state.device, AUDITED, model)
            content = page_content([data], progress=progress)
            write_atomically(run.report_path, to_utf8(render_page(content)))
    except (RankingMatchError, OSError) as error:
        log.warning("no report was written (%s)", error)


def _with_names(runs_data: list[RunData]) -> list[RunData]:
    """The runs, each named by its method and by what else differs; by its directory where that is not enough."""
    parts = [
        [data.method for data in runs_data],
        [data.dataset for data in runs_data],
        [f"{data.labels} labels" for data in runs_data],
        [f"seed {data.seed}" for data in runs_data],
    ]
    differing = [parts[0], *(part for part in parts[1:] if len(set(part)) > 1)]
    names = [", ".join(name) for name in zip(*differing, strict=True)]
    for other in ([data.directory for data in runs_data], [str(number + 1) for number in range(len(runs_data))]):
        if len(set(names)) < len(names):
            names = other if len(set(other)) == len(other) else names
    return [replace(data, name=name) for data, name in zip(runs_data, names, strict=True)]


def _run_data(
    run: Run,
    config: Config,
    result: Result | None,
    history: list[dict[str, Any]],
    environment: dict[str, Any],
    step_costs: np.ndarray,
    source: Source | None = None,
) -> RunData:
    last: dict[str, Any] = history[-1] if history else {}
    status = Status.UNDER_WAY
    if result is not None:
        status = Status.FINISHED if result.diverged_at is None else Status.DIVERGED
    # The settings that the run learned with, by the names of the flags.
    without, words = options_of_kind("execution", "run"), {True: "on", False: "off"}
    settings = {
        name.replace("_", "-"): words[value] if isinstance(value, bool) else value
        for name, value in config.settings().items()
        if value is not None and name not in without
    }
    return RunData(
        name=config.method,
        directory=run.path.resolve().name,
        dataset=config.dataset,
        method=config.method,
        labels=result.labels if result else config.data.labels or 0,
        seed=config.training.seed,
        classes=(),
        status=status,
        steps=config.training.last_step,
        command=repeat_command(config, source),
        environment=environment,
        settings=settings,
        history=history,
        step_costs=step_costs,
        threshold=config.hyperparameters.get("threshold"),
        **({"test": result.test, "val": result.val} if result else errors_from_json(last)),
        seconds=result.seconds if result else last.get("seconds"),
        diverged_at=result.diverged_at if result else None,
        diverged_part=result.diverged_part if result else None,
    )


def _with_files(run: Run, data: RunData, device: str | None, audited: int) -> RunData:
    """The run with the predictions of its saved model; with a note if the data is missing."""
    config = run.config()
    try:
        split = load_split(plan_of(config))
    except (DataError, ConfigError) as error:
        count = max((len(line.get("class_shares") or ()) for line in data.history), default=0)
        return _noted(replace(data, classes=tuple(map(str, range(count)))), f"The images cannot be read ({error}).")
    return _with_predictions(run, data, split, config.device(device), audited)


def _with_predictions(
    run: Run, data: RunData, split: Split, device: torch.device, audited: int, model: Classifier | None = None
) -> RunData:
    """The run with the predictions for test (or validation) and unlabeled images.

    They are those of a model, by default of the final one of the run, or else of the best one so far.
    """
    data = replace(data, classes=split.classes, unlabeled_total=len(split.unlabeled_rows))
    finished = data.status is Status.FINISHED
    weights = f"the averaged weights of step {data.step:,}, the last"
    if not finished:
        best = max((line["step"] for line in data.history if line.get("best")), default=0)
        weights = f"the averaged weights with the lowest validation error so far, of step {best:,}"
    try:
        if model is None:
            if not finished and not run.best_path.exists():
                raise RunError("there is no model yet")
            model, info = load_model(run.model_path if finished else run.best_path, device, trust=run.trust)
            if (info.classes, info.shape) != (split.classes, split.images.shape[1:]):
                raise RunError("the dataset has changed since training")
        rows = split.unlabeled_rows[sample(len(split.unlabeled_rows), audited)]
        fast = accelerated(model, len(rows) + len(split.test or split.validation or ()))
        parts = {
            "test": split.test,
            "validation": split.validation,
            "unlabeled": Images(split.images[rows], split.truth[rows]),
        }
        shown = next((part for part, images in parts.items() if images), "unlabeled")
        found = {}
        for part, images in parts.items():
            if images and part in (shown, "unlabeled"):
                numbers = rows if part == "unlabeled" else np.arange(len(images))
                outputs = predict_logits_and_features(fast, images.images, device)
                found[part] = Predictions(part, images.images, numbers, images.labels, *outputs)
    except RankingMatchError as error:
        return _noted(data, f"The predictions cannot be shown: {error}.")
    if shown != "test":
        data = _noted(data, f"There are no test images: {shown} images are shown instead.")
    return replace(data, evaluated=found.get(shown), unlabeled=found.get("unlabeled"), weights=weights)


def _noted(data: RunData, note: str) -> RunData:
    return replace(data, notes=(*data.notes, note))
