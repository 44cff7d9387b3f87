"""What to know before using a trained model, for people: MODEL_CARD.md."""

import json
from pathlib import Path

import numpy as np

from rankingmatch import __version__
from rankingmatch.runs.config import Config
from rankingmatch.data import Images, Split, dataset_title, is_benchmark
from rankingmatch.runs.directory import Result

# The front matter is what model hubs read.
CARD = """---
license: {licence_field}
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
classifier.predict(images)  # (n, {height}, {width}, {channels}) uint8; normalisation is inside
```

## Limits

It knows these classes and no others: every picture gets one of them, sure or not. The errors above hold for pictures
like those it was tested on. {pseudo}`config.json` has every setting, `split.json` which images were labeled.

## Classes

{names}
"""


def model_card(config: Config, split: Split, result: Result) -> str:
    """The card of a finished run, in Markdown."""
    height, width, channels = split.images.shape[1:]
    return CARD.format(
        licence_field=json.dumps(config.execution.licence or "unknown"),
        data=_cell(_name(config)),
        classes=len(split.classes),
        labels=result.labels,
        rows="\n".join(f"| {name} | {_cell(value)} |" for name, value in _facts(config, split, result).items()),
        height=height,
        width=width,
        channels=channels,
        pseudo="Unlabeled images were learned from, too: what is wrong with them is in the model. "
        if len(split.unlabeled_rows) and config.method != "supervised"
        else "",
        names=_classes(split),
    )


def _facts(config: Config, split: Split, result: Result) -> dict[str, str]:
    height, width, channels = split.images.shape[1:]
    settings = config.training
    return {
        "data": f"{_name(config)}, as {height}×{width} pixels in {channels} channel{'s' if channels > 1 else ''}",
        "images": f"{result.labels:,} labeled, {len(split.unlabeled_rows):,} unlabeled",
        "method": f"{config.method}, network {config.network.network}, {result.steps:,} steps of "
        f"{settings.batch_size} labeled images, seed {settings.seed}",
        "test error": _error(result.test_error, split.test),
        "validation error": _error(result.val_error, split.validation),
        "licence": config.execution.licence
        or "not stated; that of the images may bind the model, too (`--licence` fills this in)",
        "made by": f"rankingmatch {__version__}",
    }


def _name(config: Config) -> str:
    """How the data are called; of a folder the last part of its path, whether it is still there or not."""
    return dataset_title(config.dataset) if is_benchmark(config.dataset) else Path(config.dataset).name


def _error(error: float | None, images: Images | None) -> str:
    """An error of the weights in model.safetensors, with the number of images it was measured on."""
    return "not measured" if error is None or images is None else f"{error:.2f} % of {len(images):,} images"


def _classes(split: Split) -> str:
    """A line for each class, with the number of its labels."""
    counts = np.bincount(split.labels[split.labeled_rows], minlength=len(split.classes))
    return "\n".join(f"- {_cell(name)}: {count:,}" for name, count in zip(split.classes, counts, strict=True))


def _cell(text: str) -> str:
    """A name from the data as it can stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")
