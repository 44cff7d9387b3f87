"""What the commands print: a run before and after it is trained, its evaluation, tables, and this machine."""

import json
import shlex
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from rankingmatch.core.names import plain_console, printable
from rankingmatch.core.options import flag
from rankingmatch.data import BENCHMARKS, ImageFolder, first_few
from rankingmatch.methods import hyperparameters_of
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
    # What becomes of the labeled images, if they are not all trained on with their labels.
    data = config.data
    uses = [f"{data.validation:,} are held out for validation"] if data.validation else []
    if data.labels:
        uses += [f"{data.labels:,} keep their labels for training"]
        uses += [] if data.imbalance or data.unlabeled_imbalance else ["and the others are used without labels"]
    elif uses:
        uses = [f"{uses[0]} because there are no validation images, and the others are trained on"]
    if uses:
        assert isinstance(source, ImageFolder)
        lines.append(f"of the {sum(source.contents.counts()):,} labeled images, {', '.join(uses)}")
    return "\n".join(lines)


def _as_flag(name: str, value: object) -> str:
    if isinstance(value, bool):
        return flag(name) if value else flag(f"no_{name}")
    return f"{flag(name)} {value}"


def describe_result(result: Result, run: Run) -> str:
    """The result of a run, and the commands to use it."""
    rows = run.split_rows()
    skipped = rows.skipped if rows else []
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


# --- tables of methods and datasets --------------------------------------------------------------------------

# `rankingmatch train --help` shows the hyperparameters; the other columns would make the table too wide.
ONLY_IN_JSON = ("hyperparameters", "views", "pseudo-label", "ranking loss")


def method_rows() -> list[dict[str, Any]]:
    """The paper's comparison of methods (Table 6), for all methods, and when to choose them."""
    from rankingmatch.methods import METHODS  # which imports them all

    return [
        {
            "method": name,
            "reference": entry.reference,
            "views": entry.augmentation,
            "pseudo-label": entry.post_processing,
            "ranking loss": entry.ranking_loss,
            "note": entry.note,
            "good for": entry.good_for,
            "hyperparameters": {option.name: option.default for option in hyperparameters_of(name)},
        }
        for name, entry in METHODS.items()
    ]


def dataset_rows() -> list[dict[str, Any]]:
    """The datasets known by name, and their settings."""
    return [
        {"dataset": name, "description": benchmark.description, "settings": benchmark.preset()}
        for name, benchmark in BENCHMARKS.items()
    ]


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print a JSON object per row, or a table."""
    if as_json:
        print("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
        return
    first, *columns = (name for name in rows[0] if name not in ONLY_IN_JSON)
    table = Table(Column(first, no_wrap=True), *columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(row[first], *(_cell(row[name]) for name in columns))
    plain_console().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)


# --- this machine --------------------------------------------------------------------------------------------


def doctor_page(found: dict[str, Any]) -> list[str]:
    """The lines that `rankingmatch doctor` prints."""
    system, devices = found["system"], found["devices"]
    accelerators = ", ".join(f"{gpu['name']} ({_gib(gpu['memory_gib'])})" for gpu in devices["accelerators"])
    extras = [f"{name} {'yes' if extra['installed'] else 'no'}" for name, extra in found["extras"].items()]
    versions = [f"{name} {version or 'missing'}" for name, version in found["versions"].items()]
    speeds = [f"{'network':32}{'made for':18}{'trained per second':>20}{'to predict one':>18}"]
    for speed in found["speeds"]:
        name = f"{speed['network']}, {speed['images']}"
        if "problem" in speed:
            speeds.append(f"{name:32}{speed['for']:18}  not measured: {speed['problem']}")
        else:
            trained, predict = speed["trained_per_second"], speed["predict_milliseconds"]
            speeds.append(f"{name:32}{speed['for']:18}{f'{trained:,.0f} images':>20}{f'{predict:,.2f} ms':>18}")
    return [
        f"system      {system['platform']}, Python {system['python']}",
        f"processor   {system['processor']}: {system['cores']} cores, torch uses {system['threads']} threads",
        f"memory      {_gib(system['memory_gib'])}, {_gib(system['available_memory_gib'])} free",
        f"GPUs        {accelerators or 'none'}; computing on {devices['used']}",
        f"versions    {', '.join(versions)}",
        f"extras      {', '.join(extras)}",
        "",
        *speeds,
        "",
        *found["advice"],
    ]


def _gib(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g} GiB"
