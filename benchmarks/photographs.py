"""Prediction of photographs by a fine-tuned network: in ONNX Runtime, compared with eager torch."""

import tempfile
from itertools import islice
from pathlib import Path

from torch import nn

from inference import make_folder, write_table
from measuring import Row, in_turns, milliseconds, ratio, wall_seconds
from rankingmatch.data import images_below
from rankingmatch.networks import Classifier, make_classifier
from rankingmatch.networks.onnx import accelerated

PHOTOGRAPHS = Path("data/clothing/train")
COUNT, STORED_SIDE = 512, 160  # STORED_SIDE: of the JPEGs that are written if there are no photographs
NETWORK, SIDE = "efficientnet-lite0", 128


def fine_tuned_model() -> Classifier:
    """A pretrained network with a random head for ten classes: speed does not depend on the values of weights."""
    model = make_classifier(NETWORK, 10, pretrained=True).eval()
    nn.init.normal_(model.backbone.classifier.weight, std=0.1)  # type: ignore[union-attr,arg-type]
    return model


def rows(rounds: int = 5) -> list[Row]:
    """The row of the table, in wall time because decoding uses its own threads."""
    model = fine_tuned_model()
    converted = accelerated(model, count=10**9)  # in the warm-up round
    with tempfile.TemporaryDirectory() as directory:
        folder = PHOTOGRAPHS if PHOTOGRAPHS.is_dir() else Path(directory)
        if folder != PHOTOGRAPHS:
            make_folder(folder, COUNT, STORED_SIDE)
        files = [str(file) for file in islice(images_below(folder), COUNT)]
        times = in_turns(
            {
                "onnx": lambda: write_table(converted, files, NETWORK, SIDE),
                "torch": lambda: write_table(model, files, NETWORK, SIDE),
            },
            rounds,
            wall_seconds,
        )
    return [
        Row(
            f"prediction, photographs to a table, `{NETWORK}`, {SIDE}×{SIDE}×3, in ONNX Runtime, against eager torch",
            2,
            ratio(times, "torch", "onnx"),
            detail=f"{milliseconds(times, 'onnx')}, {milliseconds(times, 'torch')}",
        )
    ]
