"""The model card: MODEL_CARD.md, what to know before using a trained model."""

import json
from pathlib import Path

import numpy as np

from rankingmatch import __version__
from rankingmatch.data import BENCHMARKS, Images, Split
from rankingmatch.networks.efficientnet_lite import VARIANTS
from rankingmatch.runs.config import Config
from rankingmatch.runs.result import Result

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

It knows only these classes: every picture gets one of them, whatever it shows. The errors above hold for pictures
like those it was tested on. {pseudo}`config.json` has every setting, `split.json` lists the labeled images.

## Classes

{names}
"""


def model_card(config: Config, split: Split, result: Result) -> str:
    """The model card of a finished run, in Markdown."""
    height, width, channels = split.images.shape[1:]
    return CARD.format(
        license_field=json.dumps(config.execution.license or "unknown"),
        data=_cell(_name(config)),
        classes=len(split.classes),
        labels=result.labels,
        rows="\n".join(f"| {name} | {_cell(value)} |" for name, value in _facts(config, split, result).items()),
        height=height,
        width=width,
        channels=channels,
        pseudo="It also learned from unlabeled images, including any problems they have. "
        if len(split.unlabeled_rows) and config.method != "supervised"
        else "",
        names=_classes(split),
    )


def _facts(config: Config, split: Split, result: Result) -> dict[str, str]:
    height, width, channels = split.images.shape[1:]
    settings, resized = config.training, "cropped to" if config.data.crop else "as"
    return {
        "data": f"{_name(config)}, {resized} {height}×{width} pixels, {channels} channel{'s' if channels > 1 else ''}",
        "images": f"{result.labels:,} labeled, {len(split.unlabeled_rows):,} unlabeled",
        "method": f"{config.method}, network {config.network.network}, {result.steps:,} steps of "
        f"{settings.batch_size} labeled images, seed {settings.seed}",
        **_starting_weights(config),
        "test error": _error(result.test_error, split.test),
        **_balanced(result.test_balanced_error),
        "validation error": _error(result.val_error, split.validation),
        "license": config.execution.license
        or "not stated; the license of the images may apply to the model, too (`--license` fills this in)",
        "created by": f"rankingmatch {__version__}",
    }


def _starting_weights(config: Config) -> dict[str, str]:
    """The pretrained weights that training started from, with their license; nothing if it started from random ones."""
    known = VARIANTS.get(config.network.network)
    if not config.network.pretrained or known is None:
        return {}
    info = known.info
    return {"pretrained weights": f"{info.name}; license {info.license}; {info.source}"}


def _name(config: Config) -> str:
    """The name of the dataset; of a folder, the last part of its path."""
    return BENCHMARKS[config.dataset].title if config.dataset in BENCHMARKS else Path(config.dataset).name


def _error(error: float | None, images: Images | None) -> str:
    """An error of the model, with the number of images it was measured on."""
    return "not measured" if error is None or images is None else f"{error:.2f}% of {len(images):,} images"


def _balanced(error: float | None) -> dict[str, str]:
    """The balanced test error, if it was measured."""
    return {} if error is None else {"balanced test error": f"{error:.2f}%, the mean of the errors of the classes"}


def _classes(split: Split) -> str:
    """A line for each class, with the number of its labels."""
    counts = np.bincount(split.labels[split.labeled_rows], minlength=len(split.classes))
    return "\n".join(f"- {_cell(name)}: {count:,}" for name, count in zip(split.classes, counts, strict=True))


def _cell(text: str) -> str:
    """A name from the data, escaped for a table."""
    return " ".join(text.split()).replace("|", "\\|")
