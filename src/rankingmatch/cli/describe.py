"""What the command line says about a run before and after it is trained."""

import shlex
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from rankingmatch.core.names import plain_console, printable
from rankingmatch.core.options import flag
from rankingmatch.data import DataSettings, ImageFolder, first_few
from rankingmatch.runs.config import Plan
from rankingmatch.runs.directory import Run
from rankingmatch.runs.display import duration
from rankingmatch.runs.result import Result


def describe_plan(plan: Plan) -> str | None:
    """What a folder contains and the settings chosen for it; None for a dataset known by name."""
    config, source = plan.config, plan.source
    if not source.is_folder:
        if Path(config.dataset).is_dir():
            return f"{config.dataset}: using the dataset of this name; for the folder, write ./{config.dataset}"
        return None
    values = config.settings()
    lines = [f"{printable(config.dataset)}: {source.description}"]
    if plan.preset:
        lines.append(f"settings: {' '.join(_as_flag(name, values[name]) for name in plan.preset)}")
    if config.network.pretrained:
        lines.append(f"starting from pretrained weights of {config.network.network} (--no-pretrained for random ones)")
    if not source.evaluated and config.data.validation == 0:
        lines.append(
            "no validation or test images, and too few labels to hold some out: only losses and pseudo-labels will "
            "show the progress"
        )
    if uses := _uses_of_labels(config.data):
        assert isinstance(source, ImageFolder)
        lines.append(f"of the {sum(source.contents.counts()):,} labeled images, {', '.join(uses)}")
    return "\n".join(lines)


def _uses_of_labels(data: DataSettings) -> list[str]:
    """What becomes of a folder's labeled images, if they are not all trained on with their labels."""
    uses = [f"{data.validation:,} are held out for validation"] if data.validation else []
    if data.labels:
        rest = [] if data.imbalance or data.unlabeled_imbalance else ["and the others are used without labels"]
        return [*uses, f"{data.labels:,} keep their labels for training", *rest]
    return [f"{use} because there are no validation images, and the others are trained on" for use in uses]


def _as_flag(name: str, value: object) -> str:
    if isinstance(value, bool):
        return flag(name) if value else flag(f"no_{name}")
    return f"{flag(name)} {value}"


def describe_result(result: Result, run: Run) -> str:
    """The result of a run, and the commands to use it."""
    skipped = run.skipped()
    names = first_few([f"{file} {reason}" for file, reason in skipped])
    errors = [
        f"{name} error {error:.2f}%{'' if balanced is None else f' (balanced {balanced:.2f}%)'}"
        for name, error, balanced in (
            ("test", result.test_error, result.test_balanced_error),
            ("validation", result.val_error, result.val_balanced_error),
        )
        if error is not None
    ]
    path = shlex.quote(str(run.path))
    next_steps = [
        *([] if result.test_error is None else [f"evaluate {path}    # error by class, and confusions"]),
        f"predict {path} IMAGES --out predictions.csv",
        f"export {path} model.onnx",
    ]
    lines = [
        f"{', '.join(errors) or 'trained'} with {result.labels} labels, "
        f"{result.steps:,} steps in {duration(result.seconds)}",
        f"model:  {run.model_path}",
        *([f"report: {run.report_path} (open it in a browser)"] if run.report_path.exists() else []),
        *([f"skipped files: {names}; the full list is in {run.path / 'split.json'}"] if skipped else []),
        "next:   " + "\n        ".join(f"rankingmatch {step}" for step in next_steps),
    ]
    return "\n".join(lines)


PARTS = {"test": "test error", "validation": "validation error", "unverified": "error, perhaps of training images,"}


def print_evaluation(report: dict[str, Any]) -> None:
    """Print the error, and for each class what it is confused with."""
    console = plain_console()
    classes = [printable(name) for name in report["classes"]]
    console.print(
        f"{PARTS[report['part']]} {report['error']:.2f}% of {report['images']:,} images, "
        f"balanced error {report['balanced_error']:.2f}%, "
        f"calibration error {report['calibration_error']:.2f}%"
    )
    table = Table("class", "images", "error %", "recall %", "most often predicted as", box=SIMPLE_HEAD)
    rows = zip(classes, report["confusion"], report["class_errors"], report["test_recall"], strict=True)
    for own, (name, row, error, recall) in enumerate(rows):
        mistakes = sorted(((n, other) for other, n in enumerate(row) if n and other != own), reverse=True)
        confusions = ", ".join(f"{classes[other]} ({n})" for n, other in mistakes[:3])
        percentages = ("–" if value is None else f"{value:.2f}" for value in (error, recall))
        table.add_row(name, str(sum(row)), *percentages, confusions)
    console.print(table)
