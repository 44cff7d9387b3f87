"""Evaluating a trained run on labeled images."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from rankingmatch.core.errors import DataError
from rankingmatch.core.metrics import calibration_error, confusion_matrix, error_rate
from rankingmatch.data import BENCHMARKS, Images, labeled_files
from rankingmatch.networks import predict_probabilities
from rankingmatch.runs.config import Config, plan_of
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import load_dataset
from rankingmatch.runs.model import ModelInfo
from rankingmatch.runs.predict import describe_skipped, predict_files, write_predictions

log = logging.getLogger(__name__)


__all__ = ["evaluate_run", "scores"]


def evaluate_run(run: Run, dataset: str | None, *, best: bool = False, device: str | None = None) -> dict[str, Any]:
    """Error, calibration and confusion matrix of a run's model on test images.

    Parameters
    ----------
    run
        A finished run.
    dataset
        A dataset or folder with test images; a folder has them in test/, or in class folders. By default the data
        that the run was trained on.
    best
        Whether to use the weights with the lowest validation error, instead of the last ones.
    device
        Where to compute; by default as the run did.
    """
    config = run.config()
    chosen = config.device(device)
    model, info = run.load_model(chosen, best=best)
    if dataset is not None and dataset not in BENCHMARKS and Path(dataset).is_dir():
        probabilities, labels = _predict_folder(model, info, Path(dataset), chosen)
    else:
        test = _test_images(run, config if dataset is None else replace(config, dataset=dataset), info)
        labels = test.labels
        probabilities = predict_probabilities(model, test.images, chosen)
    return {
        "run": str(run.path),
        "dataset": dataset or config.dataset,
        "classes": list(info.classes),
        **scores(probabilities, labels),
    }


def _test_images(run: Run, config: Config, info: ModelInfo) -> Images:
    loaded = load_dataset(plan_of(config))
    if loaded.test is None:
        raise DataError(f"{config.dataset} has no test images; evaluate a folder of class folders instead")
    if loaded.test.images.shape[1:] != info.shape or loaded.classes != info.classes:
        raise DataError(
            f"{config.dataset} has other classes or another image shape than {run.path} was trained on {info.shape}"
        )
    return loaded.test


def _predict_folder(
    model: nn.Module, info: ModelInfo, folder: Path, device: torch.device
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and labels of a folder's images."""
    files, labels = labeled_files(folder, info.classes)
    label_of = dict(zip(files, labels, strict=True))
    found: list[tuple[int, np.ndarray]] = []
    _, skipped = write_predictions(
        predict_files(model, info, files, device), [lambda file, values: found.append((label_of[file], values))]
    )
    if skipped:
        log.warning("%d files were skipped: %s", len(skipped), describe_skipped(skipped))
    return np.stack([values for _, values in found]), np.array([label for label, _ in found])


def scores(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Metrics of (n, classes) probabilities for images with these labels, as plain values; errors in percent.

    The error of a class without images is None.
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
