"""Evaluation and prediction beside the bare network on images that are in memory already, normalised by nobody else."""

import io
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from measuring import CPU, Row, in_turns, milliseconds, ratio, wall_seconds
from rankingmatch.data import Images, images_below
from rankingmatch.networks import Classifier, make_classifier, to_tensor
from rankingmatch.runs.model import ModelInfo
from rankingmatch.runs.predict import csv_writer, predict_files, write_predictions
from rankingmatch.training.loop import confusion_of

SIDE = 32
COUNT = 512
CLASSES = tuple("0123456789")


def make_folder(place: Path, count: int, side: int) -> None:
    """Two classes of smooth noise, which compresses about as photographs do."""
    rng = np.random.default_rng(0)
    for number in range(count):
        path = place / f"class{number % 2}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3)).astype(np.uint8))
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(path, quality=90)


def some_model(network: str) -> Classifier:
    """A network that has learned nothing."""
    return make_classifier(network, len(CLASSES), torch.full((3,), 0.5), torch.ones(3)).eval()


def write_table(model: Classifier, files: list[str], network: str, side: int) -> None:
    """Files to a CSV table."""
    card = ModelInfo(network, CLASSES, 3, side, side)
    writer = csv_writer(io.StringIO(), CLASSES, probabilities=False)
    write_predictions(predict_files(model, card, files, CPU), [writer])


@torch.no_grad()
def bare_network(model: Classifier, images: torch.Tensor, size: int) -> None:
    """The network alone, on batches of this size."""
    for batch in images.split(size):
        model(batch)


def rows(rounds: int = 5) -> list[Row]:
    """The lines of the table. Decoding has threads of its own: the time is that on the wall."""
    model = some_model("wrn-28-2")
    images = np.random.default_rng(0).integers(0, 256, (COUNT, SIDE, SIDE, 3)).astype(np.uint8)
    labeled = Images(images, np.arange(COUNT) % len(CLASSES))
    tensor = to_tensor(images, CPU)
    with tempfile.TemporaryDirectory() as place:
        make_folder(Path(place), COUNT, SIDE)
        files = list(images_below(Path(place)))
        times = in_turns(
            {
                "bare": lambda: bare_network(model, tensor, 128),
                "evaluation": lambda: confusion_of(model, labeled, len(CLASSES), CPU),
                "predict": lambda: write_table(model, files, "wrn-28-2", SIDE),
            },
            rounds,
            wall_seconds,
        )
    names = {"evaluation": "evaluation", "predict": "predict, JPEG files to a table,"}
    return [
        Row(
            f"{words} `wrn-28-2`, 32×32×3, against the bare network",
            1.05,
            ratio(times, name, "bare"),
            at_least=False,
            detail=f"{milliseconds(times, name)}, {milliseconds(times, 'bare')}",
        )
        for name, words in names.items()
    ]
