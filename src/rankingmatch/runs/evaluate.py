"""Evaluating a trained run on labeled images."""

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from rankingmatch.core.errors import DataError
from rankingmatch.core.metrics import Errors, calibration_error, confusion_matrix
from rankingmatch.data import BENCHMARKS, ImageFile, Images, is_place, labeled_files
from rankingmatch.networks import predict_probabilities
from rankingmatch.networks.onnx import accelerated
from rankingmatch.runs.config import Config, plan_of
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import load_dataset, load_split
from rankingmatch.runs.leakage import roles_in_training
from rankingmatch.runs.model import ModelInfo
from rankingmatch.runs.predict import describe_skipped, predict_files, write_predictions

log = logging.getLogger(__name__)

__all__ = ["evaluate"]


def evaluate(
    run: Run | str | Path,
    data: str | Path | None = None,
    *,
    best: bool = False,
    device: str | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """Errors, calibration, recalls and confusion matrix of a trained run on images that it has not been trained on.

    Parameters
    ----------
    run
        A finished run, or its directory.
    data
        A dataset, folder or shards with test images; a folder has them in test/, or in class folders, and those that
        were used in training are left out. By default the test images of the run, or its validation images if there
        are none.
    best
        Whether to use the weights with the lowest validation error, instead of the last ones.
    device
        Where to compute; by default as the run did.
    trust
        Whether a method or network that the run names by its import path may be imported.

    Returns
    -------
    dict
        Plain values. "part" is "test", "validation" for images on which weights may have been chosen, or "unverified"
        if the folder that the run was trained on is not there to compare with; "test_error" and
        "test_balanced_error" are only there for "test".
        "left_out" has the number of images that were used in training. The recall and the error of a class without
        images are None.

    Raises
    ------
    RankingMatchError
        If the run has no model, or there are no images to evaluate it on.

    Examples
    --------
    >>> import rankingmatch as rm
    >>> rm.evaluate("runs/photos", "other-photos")["error"]  # doctest: +SKIP
    """
    run, dataset = Run.at(run, trust=trust), None if data is None else str(data)
    config = run.config()
    chosen = config.device(device)
    model, info = run.load_model(chosen, best=best)
    if dataset and dataset not in BENCHMARKS and is_place(dataset):
        part, left_out, files, labels = _unseen_files(run, Path(dataset), info)
        probabilities, truth = _predict_files(model, info, files, labels, chosen)
    else:
        part, images = _held_out_images(run, config if dataset is None else replace(config, dataset=dataset), info)
        truth, left_out = images.labels, 0
        probabilities = predict_probabilities(accelerated(model, len(images)), images.images, chosen)
    predicted = probabilities.argmax(1)
    confusion = confusion_matrix(truth, predicted, len(info.classes))
    errors = Errors.of(confusion)
    found = {"error": errors.error, "balanced_error": errors.balanced_error}
    return {
        "run": str(run.path),
        "dataset": dataset or config.dataset,
        "classes": list(info.classes),
        "part": part,
        "left_out": left_out,
        **found,
        **({f"test_{name}": error for name, error in found.items()} if part == "test" else {}),
        "images": len(truth),
        "test_recall": errors.recall,
        "calibration_error": calibration_error(probabilities.max(1), predicted == truth),
        "class_errors": [None if recall is None else 100 - recall for recall in errors.recall or ()],
        "confusion": confusion.tolist(),
    }


def _held_out_images(run: Run, config: Config, info: ModelInfo) -> tuple[str, Images]:
    """The test images of a run's dataset, or its validation images if it has none."""
    plan = plan_of(config)
    loaded = load_dataset(plan)
    part, images = "test", loaded.test
    if images is None:
        split = load_split(plan)
        rows = run.split_rows()
        if rows is not None and rows.fingerprint != split.fingerprint:
            raise DataError(
                f"{config.dataset} has no test images, and it has changed since training, so that its validation "
                "images may have been trained on; evaluate a folder of other images"
            )
        part, images = "validation", split.validation
    if images is None or not len(images):
        raise DataError(
            f"{config.dataset} has neither test nor validation images; evaluate a folder of class folders with other "
            "images"
        )
    if images.images.shape[1:] != info.shape or loaded.classes != info.classes:
        raise DataError(
            f"{config.dataset} has other classes or another image shape than {run.path} was trained on {info.shape}"
        )
    return part, images


def _unseen_files(run: Run, folder: Path, info: ModelInfo) -> tuple[str, int, list[ImageFile], list[int]]:
    """The files of a folder that were not used in training, or else those for validation, with their labels.

    The other two values are what these images are, and the number of the others.
    """
    files, labels = labeled_files(folder, info.classes)
    roles = roles_in_training(run, files)
    if roles is None:
        log.warning(
            "%s is not there, so images of %s may have been used in training: this is not a test error",
            *(run.config().dataset, folder),
        )
        return "unverified", 0, files, labels
    counts = Counter(sorted(roles.values()))
    part = "test" if len(roles) < len(files) else "validation"
    kept = [file not in roles if part == "test" else roles[file] == "validation" for file in files]
    if not any(kept):
        raise DataError(
            f"all {len(files):,} images of {folder} were used in training, {counts['labeled']:,} of them with their "
            "labels, so their error tells nothing about new images; evaluate a folder of others"
        )
    if sum(kept) < len(files):
        used = ", ".join(f"{count:,} {role}" for role, count in counts.items() if role != part)
        log.warning(
            "%d of %d images were used in training (%s) and are left out", len(files) - sum(kept), len(files), used
        )
    chosen = [(file, label) for file, label, keep in zip(files, labels, kept, strict=True) if keep]
    return part, len(files) - len(chosen), [file for file, _ in chosen], [label for _, label in chosen]


def _predict_files(
    model: nn.Module, info: ModelInfo, files: list[ImageFile], labels: list[int], device: torch.device
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and labels of the files that can be read."""
    label_of = dict(zip(files, labels, strict=True))
    found: list[tuple[int, np.ndarray]] = []
    _, skipped = write_predictions(
        predict_files(model, info, files, device, len(files)),
        [lambda file, values: found.append((label_of[file], values))],
    )
    if skipped:
        log.warning("%d files were skipped: %s", len(skipped), describe_skipped(skipped))
    return np.stack([values for _, values in found]), np.array([label for label, _ in found])
