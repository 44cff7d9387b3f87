"""The model card: MODEL_CARD.md, what to know before using a trained model."""

import json
from pathlib import Path

import numpy as np

from rankingmatch import __version__
from rankingmatch.core.metrics import Errors
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

It knows only these classes: every image gets one of them, whatever it shows. The errors above hold for images
like those it was tested on. {pseudo}`config.json` has every setting, `split.json` lists the labeled images.

## Classes

{names}
"""


def model_card(config: Config, split: Split, result: Result) -> str:
    """The model card of a finished run, in Markdown."""
    height, width, channels = split.images.shape[1:]
    counts = np.bincount(split.labels[split.labeled_rows], minlength=len(split.classes))
    learned = "It also learned from unlabeled images, including any problems they have. "
    return CARD.format(
        license_field=json.dumps(config.execution.license or "unknown"),
        data=_cell(_name(config)),
        classes=len(split.classes),
        labels=result.labels,
        rows="\n".join(f"| {name} | {_cell(value)} |" for name, value in _facts(config, split, result).items()),
        height=height,
        width=width,
        channels=channels,
        pseudo=learned if len(split.unlabeled_rows) and config.method != "supervised" else "",
        names="\n".join(f"- {_cell(name)}: {count:,}" for name, count in zip(split.classes, counts, strict=True)),
    )


def _facts(config: Config, split: Split, result: Result) -> dict[str, str]:
    height, width, channels = split.images.shape[1:]
    settings, resized = config.training, "cropped to" if config.data.crop else "as"
    facts = {
        "data": f"{_name(config)}, {resized} {height}×{width} pixels, {channels} channel{'s' if channels > 1 else ''}",
        "images": f"{result.labels:,} labeled, {len(split.unlabeled_rows):,} unlabeled",
        "method": f"{config.method}, network {config.network.network}, {result.steps:,} steps of "
        f"{settings.batch_size} labeled images, seed {settings.seed}",
    }
    if config.network.pretrained and config.network.network in VARIANTS:
        info = VARIANTS[config.network.network].info
        facts["pretrained weights"] = f"{info.name}; license {info.license}; {info.source}"
    facts["test error"] = _error(result.test, split.test)
    if result.test_balanced_error is not None:
        facts["balanced test error"] = f"{result.test_balanced_error:.2f}%, the mean of the errors of the classes"
    facts["validation error"] = _error(result.val, split.validation)
    unknown = "not stated; the license of the images may apply to the model, too (`--license` fills this in)"
    return {**facts, "license": config.execution.license or unknown, "created by": f"rankingmatch {__version__}"}


def _name(config: Config) -> str:
    """The name of the dataset; of a folder, the last part of its path."""
    return BENCHMARKS[config.dataset].title if config.dataset in BENCHMARKS else Path(config.dataset).name


def _error(errors: Errors | None, images: Images | None) -> str:
    """The error on images, with their number."""
    return "not measured" if errors is None or images is None else f"{errors.error:.2f}% of {len(images):,} images"


def _cell(text: str) -> str:
    """A name from the data, escaped for a table."""
    return " ".join(text.split()).replace("|", "\\|")
