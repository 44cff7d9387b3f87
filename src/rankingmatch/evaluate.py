"""How a trained run does on labeled images."""

from dataclasses import replace
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rankingmatch.data import Images
from rankingmatch.errors import DataError
from rankingmatch.job import load_dataset
from rankingmatch.metrics import calibration_error, confusion_matrix, error_rate
from rankingmatch.networks import outputs
from rankingmatch.run import Run


def evaluate_run(run: Run, dataset: str | None, *, best: bool = False, device: str | None = None) -> dict[str, Any]:
    """Error, calibration and confusion of a run's model on the test images of a dataset, by default its own."""
    config = run.config()
    place = replace(config.execution, device=device or config.execution.device).torch_device()
    model, card = run.load_model(place, best=best)
    name = dataset or config.dataset
    loaded = load_dataset(config if dataset is None else replace(config, dataset=dataset))
    if loaded.test is None:
        raise DataError(f"{name} has no test images")
    shape = (card.height, card.width, card.channels)
    if loaded.test.images.shape[1:] != shape or loaded.classes != card.classes:
        raise DataError(f"{name} has other classes or another image shape than {run.path} was trained on {shape}")
    probabilities = np.concatenate(
        [output.logits.softmax(1).cpu().numpy() for output in outputs(model, loaded.test.images, place)]
    )
    return {
        "run": str(run.path),
        "dataset": name,
        "classes": list(card.classes),
        **scores(probabilities, loaded.test),
    }


def scores(probabilities: np.ndarray, images: Images) -> dict[str, Any]:
    """What (n, classes) probabilities say about labeled images, as plain values; errors in percent."""
    predicted = probabilities.argmax(1)
    confusion = confusion_matrix(images.labels, predicted, probabilities.shape[1])
    per_class = 100 * (1 - np.diag(confusion) / np.maximum(confusion.sum(1), 1))
    return {
        "images": len(images),
        "test_error": error_rate(confusion),
        "calibration_error": calibration_error(probabilities.max(1), predicted == images.labels),
        "class_errors": per_class.tolist(),
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
        table.add_row(name, str(sum(row)), f"{error:.2f}", words)
    console.print(table)
