"""What the command line says about a run before and after it is trained."""

from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rankingmatch.core.options import flag
from rankingmatch.data import first_few
from rankingmatch.runs.config import Plan
from rankingmatch.runs.directory import Result, Run
from rankingmatch.runs.display import duration


def describe_plan(plan: Plan) -> str | None:
    """What a folder contains and the settings chosen for it; None for a dataset known by name."""
    config, source = plan.config, plan.source
    if not source.is_folder:
        if Path(config.dataset).is_dir():
            return f"{config.dataset}: using the dataset of this name; for the folder, write ./{config.dataset}"
        return None
    values = config.settings()
    lines = [f"{config.dataset}: {source.description}"]
    if plan.preset:
        lines.append(f"settings: {' '.join(_as_flag(name, values[name]) for name in plan.preset)}")
    if config.network.pretrained:
        lines.append(f"starting from pretrained weights of {config.network.network} (--no-pretrained for random ones)")
    if config.data.labels:
        lines.insert(1, f"--labels {config.data.labels}: keeping {config.data.labels:,} labels, hiding the rest")
    if not source.evaluated and config.data.validation == 0:
        lines.append(
            "no validation or test images, and too few labels to hold some out: only losses and pseudo-labels will "
            "show the progress"
        )
    elif config.data.validation:
        lines.append(f"no validation images: holding out {config.data.validation:,} of the labeled images")
    return "\n".join(lines)


def _as_flag(name: str, value: object) -> str:
    if isinstance(value, bool):
        return flag(name) if value else flag(f"no_{name}")
    return f"{flag(name)} {value}"


def describe_result(result: Result, run: Run) -> str:
    """The result of a run, and the commands to use it."""
    skipped = run.skipped()
    names = first_few([f"{file} {reason}" for file, reason in skipped])
    errors = [
        f"{name} error {error:.2f} %"
        for name, error in (("test", result.test_error), ("validation", result.val_error))
        if error is not None
    ]
    next_steps = [
        *([] if result.test_error is None else [f"evaluate {run.path}    # error by class, and confusions"]),
        f"predict {run.path} IMAGES --out predictions.csv",
        f"export {run.path} model.onnx",
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


def print_evaluation(report: dict[str, Any]) -> None:
    """Print the error, and for each class what it is confused with."""
    console = Console()
    console.print(
        f"test error {report['test_error']:.2f} % of {report['images']:,} images, "
        f"calibration error {report['calibration_error']:.2f} %",
        highlight=False,
    )
    table = Table("class", "images", "error %", "most often predicted as", box=SIMPLE_HEAD)
    rows = zip(report["classes"], report["confusion"], report["class_errors"], strict=True)
    for own, (name, row, error) in enumerate(rows):
        mistakes = sorted(((n, other) for other, n in enumerate(row) if n and other != own), reverse=True)
        confusions = ", ".join(f"{report['classes'][other]} ({n})" for n, other in mistakes[:3])
        table.add_row(name, str(sum(row)), "–" if error is None else f"{error:.2f}", confusions)
    console.print(table)
