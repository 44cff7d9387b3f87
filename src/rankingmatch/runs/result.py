"""What the files of a run say of its training: a line for each evaluation, the result, and the model card.

The errors of a part stand on one level in JSON, by names such as `val_error` and `test_recall`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, get_type_hints

import numpy as np

from rankingmatch import __version__
from rankingmatch.core.metrics import Errors, Percent
from rankingmatch.core.untrusted import FORMATS, BadFileError, Between, Size, check_value, typed
from rankingmatch.data import Images, Split, dataset_title
from rankingmatch.networks.efficientnet_lite import VARIANTS
from rankingmatch.runs.config import Config
from rankingmatch.training.records import Record
from rankingmatch.training.state import Verdict

Seconds = Annotated[float, Between(0, 1e12)]
_HINTS = get_type_hints(Errors, include_extras=True)
ERRORS = {f"{part}_{name}": hint | None for part in ("val", "test") for name, hint in _HINTS.items()}
# What a line of metrics.jsonl may have; everything else in it is a number, a truth value, or a list of numbers.
LINE = {"step": Size, "seconds": Seconds, "best": bool | None, "class_shares": list[float] | None, **ERRORS}


def _figure(part: str, name: str) -> Any:
    """An attribute of a result that is a field of the errors of one of its parts."""
    return property(lambda self: getattr(getattr(self, part), name, None))


@dataclass(frozen=True)
class Result:
    """The outcome of a finished run; errors are in percent and of the EMA weights.

    Attributes
    ----------
    dataset, method, labels, seed
        What was trained: names, the number of labels, and the random seed.
    steps, seconds
        How long it took.
    test, val
        The errors at the last step; None without such images. Each of them is an attribute, too: `test_error` and
        `val_error`; `test_balanced_error` and `val_balanced_error`, the mean over the classes of their errors;
        `test_recall` and `val_recall`, the recall of each class, None for one without images.
    best_step, best_val_error, best_test_error
        The step with the lowest validation error, and the errors there.
    diverged_at, diverged_part
        The step at which a loss became non-finite, and which one; None if training did not diverge.
    """

    dataset: str
    method: str
    labels: Size
    seed: int
    steps: Size
    seconds: Seconds
    test: Errors | None = None
    val: Errors | None = None
    best_step: Size | None = None
    best_val_error: Percent | None = None
    best_test_error: Percent | None = None
    diverged_at: Size | None = None
    diverged_part: str | None = None

    test_error = _figure("test", "error")
    val_error = _figure("val", "error")
    test_balanced_error = _figure("test", "balanced_error")
    val_balanced_error = _figure("val", "balanced_error")
    test_recall = _figure("test", "recall")
    val_recall = _figure("val", "recall")

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the format number."""
        values = {name: value for name, value in vars(self).items() if name not in ("test", "val")}
        return {"format": FORMATS["result"], **values, **errors_to_json(self.val, self.test)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Result":
        """The inverse of `to_json`; raises BadFileError for a value that is not what it should be."""
        others = {name: value for name, value in values.items() if name not in {"format", *ERRORS}}
        return replace(typed(cls, others), **errors_from_json(values))


def errors_to_json(val: Errors | None, test: Errors | None) -> dict[str, Any]:
    """The errors of both parts on one level."""
    return {
        f"{part}_{field.name}": getattr(errors, field.name, None)
        for part, errors in (("val", val), ("test", test))
        for field in fields(Errors)
    }


def errors_from_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """The errors of the parts "val" and "test", checked; None without such images."""
    found = {name: check_value(name, values.get(name), hint) for name, hint in ERRORS.items()}
    parts = {part: {name: found[f"{part}_{name}"] for name in _HINTS} for part in ("val", "test")}
    return {part: None if errors["error"] is None else Errors(**errors) for part, errors in parts.items()}


def record_to_json(record: Record) -> dict[str, Any]:
    """A record on one level: a line of metrics.jsonl."""
    values: dict[str, Any] = {"step": record.step, "seconds": round(record.seconds, 3)}
    if record.metrics:
        values |= {key: value for key, value in asdict(record.metrics).items() if key != "losses"}
        values |= {f"loss_{name}": value for name, value in record.metrics.losses.items()}
    if record.evaluation:
        found = record.evaluation
        values |= {"best": found.best, **errors_to_json(found.validation, found.test)}
    return values


def check_line(line: Mapping[str, Any]) -> None:
    """Raise BadFileError unless a line of metrics.jsonl has the values of an evaluation."""
    if "step" not in line:
        raise BadFileError("a line is not an evaluation: it has no step")
    for name, value in line.items():
        if name in LINE:
            check_value(name, value, LINE[name])
        elif isinstance(value, list):
            check_value(name, value, list[float])
        elif not isinstance(value, bool):
            check_value(name[:50], value, float | None)


# --- the model card -----------------------------------------------------------------------------------------

# The front matter is what model hubs read.
CARD = """---
license: {license_field}
library_name: rankingmatch
pipeline_tag: image-classification
tags: [image-classification, semi-supervised-learning]
---

# {data}: {classes} classes from {labels:,} labels

| | |
|---|---|
{rows}

## Use

```sh
rankingmatch predict RUN IMAGES --out predictions.csv    # RUN: this directory; files, folders or both
rankingmatch export RUN model.onnx                       # for ONNX Runtime, without this package
```

```python
from rankingmatch import RankingMatchClassifier

classifier = RankingMatchClassifier.load("model.safetensors")  # no pickle: weights and plain JSON
classifier.predict(images)  # (n, {height}, {width}, {channels}) uint8; normalization is included
```

## Limits

It knows only these classes: every image gets one of them, whatever it shows. The errors above hold for images
like those it was tested on. {pseudo}`config.json` has every setting, `split.json` lists the labeled images.

## Classes

{names}
"""


def model_card(config: Config, split: Split, result: Result, verdict: Verdict | None = None) -> str:
    """The model card of a finished run: MODEL_CARD.md, what to know before using the model."""
    height, width, channels = split.images.shape[1:]
    counts = np.bincount(split.labels[split.labeled_rows], minlength=len(split.classes))
    learned = "It also learned from unlabeled images, including any problems they have. "
    name = dataset_title(config.dataset)
    settings, resized = config.training, "cropped to" if config.data.crop else "as"
    facts = {
        "data": f"{name}, {resized} {height}×{width} pixels, {channels} channel{'s' if channels > 1 else ''}",
        "images": f"{result.labels:,} labeled, {len(split.unlabeled_rows):,} unlabeled",
        "method": f"{config.method}, network {config.network.network}, {result.steps:,} steps of "
        f"{settings.batch_size} labeled images, seed {settings.seed}",
    }
    if config.network.pretrained and config.network.network in VARIANTS:
        info = VARIANTS[config.network.network].info
        facts["pretrained weights"] = f"{info.name}; license {info.license}; {info.source}"
    if verdict is not None:
        facts["final weights"] = str(verdict)
    facts["test error"] = _error(result.test, split.test)
    if result.test_balanced_error is not None:
        facts["balanced test error"] = f"{result.test_balanced_error:.2f}%, the mean of the errors of the classes"
    facts["validation error"] = _error(result.val, split.validation)
    unknown = "not stated; the license of the images may apply to the model, too (`--license` fills this in)"
    facts |= {"license": config.execution.license or unknown, "created by": f"rankingmatch {__version__}"}
    return CARD.format(
        license_field=json.dumps(config.execution.license or "unknown"),
        data=_cell(name),
        classes=len(split.classes),
        labels=result.labels,
        rows="\n".join(f"| {fact} | {_cell(value)} |" for fact, value in facts.items()),
        height=height,
        width=width,
        channels=channels,
        pseudo=learned if len(split.unlabeled_rows) and config.method != "supervised" else "",
        names="\n".join(f"- {_cell(name)}: {count:,}" for name, count in zip(split.classes, counts, strict=True)),
    )


def _error(errors: Errors | None, images: Images | None) -> str:
    """The error on images, with their number."""
    return "not measured" if errors is None or images is None else f"{errors.error:.2f}% of {len(images):,} images"


def _cell(text: str) -> str:
    """A name from the data, escaped for a table."""
    return " ".join(text.split()).replace("|", "\\|")
