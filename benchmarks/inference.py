"""Evaluation and prediction, compared with the bare network on images that are already in memory."""

import io
import tempfile
from collections import deque
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from measuring import CPU, Row, in_turns, milliseconds, ratio, wall_seconds
from rankingmatch.data import images_below
from rankingmatch.networks import Classifier, make_classifier, predict_logits, to_tensor
from rankingmatch.runs.model import ModelInfo
from rankingmatch.runs.predict import csv_writer, predict_files, write_predictions

SIDE = 32
COUNT = 512
CLASSES = tuple("0123456789")


def make_folder(directory: Path, count: int, side: int) -> None:
    """Write two classes of smooth noise, which compresses about as well as photographs."""
    rng = np.random.default_rng(0)
    for number in range(count):
        path = directory / f"class{number % 2}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3)).astype(np.uint8))
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(path, quality=90)


def untrained_model(network: str) -> Classifier:
    """A classifier with random weights."""
    return make_classifier(network, len(CLASSES), torch.full((3,), 0.5), torch.ones(3)).eval()


def write_table(model: nn.Module, files: list[str], network: str, side: int) -> None:
    """Predict files into a CSV table."""
    info = ModelInfo(network, CLASSES, 3, side, side)
    writer = csv_writer(io.StringIO(), CLASSES, probabilities=False)
    deque(write_predictions(predict_files(model, info, files, CPU, len(files)), [writer]), maxlen=0)


@torch.no_grad()
def bare_network(model: Classifier, images: torch.Tensor, size: int) -> None:
    """Run only the network, on batches of this size."""
    for batch in images.split(size):
        model(batch)


def rows(rounds: int = 5) -> list[Row]:
    """The rows of the table, in wall time because decoding uses its own threads."""
    model = untrained_model("wrn-28-2")
    images = np.random.default_rng(0).integers(0, 256, (COUNT, SIDE, SIDE, 3)).astype(np.uint8)
    tensor = to_tensor(images, CPU)
    with tempfile.TemporaryDirectory() as directory:
        make_folder(Path(directory), COUNT, SIDE)
        files = [str(file) for file in images_below(Path(directory))]
        times = in_turns(
            {
                "bare": lambda: bare_network(model, tensor, 128),
                "evaluation": lambda: predict_logits(model, images, CPU),
                "predict": lambda: write_table(model, files, "wrn-28-2", SIDE),
            },
            rounds,
            wall_seconds,
        )
    titles = {"evaluation": "evaluation", "predict": "prediction, JPEG files to a table"}
    return [
        Row(
            f"{title}, `wrn-28-2`, 32×32×3, against the bare network",
            1.05,
            ratio(times, name, "bare"),
            at_least=False,
            detail=f"{milliseconds(times, name)}, {milliseconds(times, 'bare')}",
        )
        for name, title in titles.items()
    ]
