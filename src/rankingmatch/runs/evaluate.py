"""Evaluating a trained run on labeled images."""

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.core.errors import ConfigError, DataError
from rankingmatch.core.metrics import Errors, calibration_error, confusion_matrix
from rankingmatch.data import (
    BENCHMARKS,
    ImageFile,
    ImageFolder,
    Images,
    UnreadableError,
    is_place,
    labeled_files,
    printable,
)
from rankingmatch.data.decode import file_size, open_file
from rankingmatch.networks import predict_probabilities
from rankingmatch.networks.onnx import accelerated
from rankingmatch.runs.config import Config, plan_of
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import load_dataset, load_split
from rankingmatch.runs.model import ModelInfo
from rankingmatch.runs.predict import FilePredictions, describe_skipped, predict_files, write_predictions

log = logging.getLogger(__name__)


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
        part, left_out, label_of = _unseen_files(run, Path(dataset), info)
        batches = predict_files(model, info, label_of, chosen, len(label_of))
        found = FilePredictions.together(write_predictions(batches, []))
        if found.skipped:
            log.warning("%d files were skipped: %s", len(found.skipped), describe_skipped(found.skipped))
        truth, probabilities = np.array([label_of[file] for file in found.files]), found.probabilities
    else:
        part, images = _held_out_images(run, config if dataset is None else replace(config, dataset=dataset), info)
        truth, left_out = images.labels, 0
        probabilities = predict_probabilities(accelerated(model, len(images)), images.images, chosen)
    predicted = probabilities.argmax(1)
    confusion = confusion_matrix(truth, predicted, len(info.classes))
    errors = Errors.of(confusion)
    rates = {"error": errors.error, "balanced_error": errors.balanced_error}
    return {
        "run": str(run.path),
        "dataset": dataset or config.dataset,
        "classes": list(info.classes),
        "part": part,
        "left_out": left_out,
        **rates,
        **({f"test_{name}": error for name, error in rates.items()} if part == "test" else {}),
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


def _unseen_files(run: Run, folder: Path, info: ModelInfo) -> tuple[str, int, dict[ImageFile, int]]:
    """The labels of the files of a folder that were not used in training, or else of those for validation.

    The other two values are what these images are, and the number of the others.
    """
    files, labels = labeled_files(folder, info.classes)
    label_of = dict(zip(files, labels, strict=True))
    roles = roles_in_training(run, files)
    if roles is None:
        log.warning(
            "%s is not there, so images of %s may have been used in training: this is not a test error",
            *(run.config().dataset, folder),
        )
        return "unverified", 0, label_of
    counts = Counter(sorted(roles.values()))
    part = "test" if len(roles) < len(files) else "validation"
    kept = {file: label for file, label in label_of.items() if roles.get(file, "test") == part}
    left_out = len(files) - len(kept)
    if not kept:
        raise DataError(
            f"all {len(files):,} images of {folder} were used in training, {counts['labeled']:,} of them with their "
            "labels, so their error tells nothing about new images; evaluate a folder of others"
        )
    if left_out:
        used = ", ".join(f"{count:,} {role}" for role, count in counts.items() if role != part)
        log.warning("%d of %d images were used in training (%s) and are left out", left_out, len(files), used)
    return part, left_out, kept


# --- what was used in training -------------------------------------------------------------------------------


def roles_in_training(run: Run, files: Sequence[ImageFile]) -> dict[ImageFile, str] | None:
    """What a run has used files for: "labeled", "unlabeled" or "validation"; a file that it has not used is missing.

    A copy counts as the same file. Returns None if that is not known, because the folder of the run is not there.
    """
    config = run.config()
    if config.dataset in BENCHMARKS:
        return {}
    try:
        source = plan_of(config).source
    except (ConfigError, DataError):
        return None
    assert isinstance(source, ImageFolder)
    used = dict(_used_files(run, source))
    real = {os.path.realpath(str(path)): role for path, role in used.items()}
    roles = {file: real[path] for file in files if (path := os.path.realpath(str(file))) in real}
    others = [file for file in files if file not in roles]
    sizes = {size for file in others if (size := _size(file)) is not None}
    copied = {_digest(path): role for path, role in used.items() if _size(path) in sizes}
    known = {file: copied.get(_digest(file)) for file in others} if copied else {}
    return {**roles, **{file: role for file, role in known.items() if role is not None}}


def _used_files(run: Run, source: ImageFolder) -> Iterator[tuple[ImageFile, str]]:
    """The files of the training and validation images of a folder, each with its role."""
    contents = source.contents
    yield from ((contents.path(file), "validation") for file, _ in contents.parts.get("validation", ()))
    rows = run.split_rows()
    skipped = {file for file, _ in rows.skipped} if rows else set()
    read = [file for file, _ in contents.parts["train"] if printable(file) not in skipped]
    # If files were added or removed, rows are not those of training: then every image may have been used.
    same = rows is not None and rows.fingerprint == contents.fingerprint()
    labeled, held_out = (set(rows.labeled), set(rows.validation)) if rows and same else (set(), set())
    for row, file in enumerate(read):
        role = "labeled" if row in labeled else "validation" if row in held_out else "unlabeled"
        yield contents.path(file), role


def _size(file: ImageFile) -> int | None:
    try:
        return file_size(file)
    except (OSError, UnreadableError):
        return None


def _digest(file: ImageFile) -> bytes:
    """The checksum of a file; of one that cannot be read, of its name."""
    try:
        with open_file(file) as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except (OSError, UnreadableError):
        return os.fsencode(str(file))
