"""How a trained run does on labeled images."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch import nn

from rankingmatch.runs.checkpoint import ModelCard
from rankingmatch.runs.config import Config
from rankingmatch.data import BENCHMARKS, Images, labeled_files
from rankingmatch.core.errors import DataError
from rankingmatch.runs.job import load_dataset
from rankingmatch.core.metrics import calibration_error, confusion_matrix, error_rate
from rankingmatch.networks import outputs
from rankingmatch.runs.predict import predictions, skipped_words, write_predictions
from rankingmatch.runs.directory import Run

log = logging.getLogger(__name__)


def evaluate_run(run: Run, dataset: str | None, *, best: bool = False, device: str | None = None) -> dict[str, Any]:
    """Error, calibration and confusion of a run's model on the test images of a dataset or folder, by default its own.

    A folder has them in test/, or in class folders.
    """
    config = run.config()
    place = replace(config.execution, device=device or config.execution.device).torch_device()
    model, card = run.load_model(place, best=best)
    if dataset is not None and dataset not in BENCHMARKS and Path(dataset).is_dir():
        probabilities, labels = _of_folder(model, card, Path(dataset), place)
    else:
        test = _test_images(run, config if dataset is None else replace(config, dataset=dataset), card)
        labels = test.labels
        probabilities = np.concatenate(
            [output.logits.softmax(1).cpu().numpy() for output in outputs(model, test.images, place)]
        )
    return {
        "run": str(run.path),
        "dataset": dataset or config.dataset,
        "classes": list(card.classes),
        **scores(probabilities, labels),
    }


def _test_images(run: Run, config: Config, card: ModelCard) -> Images:
    loaded = load_dataset(config)
    if loaded.test is None:
        raise DataError(
            f"{config.dataset} has no test images; give a folder of class folders: rankingmatch evaluate RUN FOLDER"
        )
    shape = (card.height, card.width, card.channels)
    if loaded.test.images.shape[1:] != shape or loaded.classes != card.classes:
        raise DataError(
            f"{config.dataset} has other classes or another image shape than {run.path} was trained on {shape}"
        )
    return loaded.test


def _of_folder(model: nn.Module, card: ModelCard, folder: Path, device: torch.device) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and labels of a folder's images."""
    files, labels = labeled_files(folder, card.classes)
    label_of = dict(zip(files, labels, strict=True))
    pieces: list[tuple[int, np.ndarray]] = []
    _, bad = write_predictions(
        predictions(model, card, files, device), [lambda file, values: pieces.append((label_of[file], values))]
    )
    if bad:
        log.warning("%d files are left out: %s", len(bad), skipped_words(bad))
    return np.stack([values for _, values in pieces]), np.array([label for label, _ in pieces])


def scores(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """What (n, classes) probabilities say about images with these labels, as plain values; errors in percent.

    A class without images has no error: None.
    """
    predicted = probabilities.argmax(1)
    confusion = confusion_matrix(labels, predicted, probabilities.shape[1])
    counts = zip(np.diag(confusion).tolist(), confusion.sum(1).tolist(), strict=True)
    return {
        "images": len(labels),
        "test_error": error_rate(confusion),
        "calibration_error": calibration_error(probabilities.max(1), predicted == labels),
        "class_errors": [100 * (1 - right / images) if images else None for right, images in counts],
        "confusion": confusion.tolist(),
    }


def evaluation_table(report: dict[str, Any]) -> None:
    """Print the error, and for each class what it is taken for."""
    console = Console()
    console.print(
        f"test error {report['test_error']:.2f} % of {report['images']:,} images, "
        f"calibration error {report['calibration_error']:.2f} %",
        highlight=False,
    )
    table = Table("class", "images", "error %", "most often taken for", box=SIMPLE_HEAD)
    rows = zip(report["classes"], report["confusion"], report["class_errors"], strict=True)
    for own, (name, row, error) in enumerate(rows):
        mistakes = sorted(((n, other) for other, n in enumerate(row) if n and other != own), reverse=True)
        words = ", ".join(f"{report['classes'][other]} ({n})" for n, other in mistakes[:3])
        table.add_row(name, str(sum(row)), "–" if error is None else f"{error:.2f}", words)
    console.print(table)
