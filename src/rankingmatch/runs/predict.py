"""Predictions for any number of image files: decoded, predicted and written batch by batch."""

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import torch
from torch import nn

from rankingmatch.core.errors import ConfigError, DataError, setting
from rankingmatch.data import decode_files, first_few, images_below, printable
from rankingmatch.networks import predict_probabilities
from rankingmatch.runs.model import ModelInfo

__all__ = ["FilePredictions", "csv_writer", "image_files", "json_writer", "predict_files", "write_predictions"]

Writer = Callable[[str, np.ndarray], None]  # takes a file and its (classes,) probabilities


class FilePredictions(NamedTuple):
    """Predictions for a batch of files.

    Attributes
    ----------
    files
        The image files.
    probabilities
        Their (n, classes) probabilities.
    skipped
        The files that are not images, each with the reason.
    """

    files: tuple[str, ...]
    probabilities: np.ndarray
    skipped: tuple[tuple[str, str], ...]


def predict_files(
    model: nn.Module, info: ModelInfo, files: Iterable[str], device: torch.device
) -> Iterator[FilePredictions]:
    """Predict image files in order, batch by batch.

    Parameters
    ----------
    model, info
        A trained model, as `load_model` returns it.
    files
        Paths of images; they are resized like the training images.
    device
        Where to compute.
    """
    for chunk in decode_files(files, info.shape, crop=info.crop):
        probabilities = np.empty((0, len(info.classes)), np.float32)
        if chunk.files:
            probabilities = predict_probabilities(model, chunk.images, device)
        yield FilePredictions(chunk.files, probabilities, chunk.bad)


def image_files(names: Iterable[str], standard_input: Iterable[str] = ()) -> Iterator[str]:
    """The given files, and all images below the given folders; `-` stands for the names on standard input."""
    for name in names:
        if name == "-":
            yield from standard_input
        elif Path(name).is_dir():
            yield from images_below(Path(name))
        elif os.path.lexists(name):
            yield name
        else:
            raise DataError(f"there is no file or folder {printable(name)}")


def read_names(file: IO[bytes], end: bytes = b"\n") -> Iterator[str]:
    """The file names in a stream, separated by line breaks or another byte."""
    rest = b""
    while block := file.read1(1 << 16) if hasattr(file, "read1") else file.read(1 << 16):
        *whole, rest = (rest + block).split(end)
        yield from (os.fsdecode(name.removesuffix(b"\r")) for name in whole if name)
    if rest:
        yield os.fsdecode(rest)


def write_predictions(
    batches: Iterable[FilePredictions], writers: Iterable[Writer]
) -> tuple[int, list[tuple[str, str]]]:
    """Pass every prediction to every writer; returns the number of images, and the skipped files with the reasons.

    Raises DataError if more than half of the files are skipped.
    """
    writers = tuple(writers)
    count = 0
    skipped: list[tuple[str, str]] = []
    for batch in batches:
        for file, probabilities in zip(batch.files, batch.probabilities, strict=True):
            for write in writers:
                write(file, probabilities)
        count += len(batch.files)
        skipped += batch.skipped
    if not count and not skipped:
        raise DataError("there are no images to predict; give image files, or folders with images")
    if len(skipped) > count:
        raise DataError(
            f"more than half of the {count + len(skipped):,} files cannot be read: {describe_skipped(skipped)}"
        )
    return count, skipped


def describe_skipped(skipped: list[tuple[str, str]]) -> str:
    """The first skipped files and the reasons, on one line."""
    return first_few([f"{file} {reason}" for file, reason in skipped])


def csv_writer(file: IO[str], classes: tuple[str, ...], *, probabilities: bool) -> Writer:
    """Write CSV rows of file, label and confidence, optionally with the probability of every class."""
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["file", "label", "confidence", *(classes if probabilities else ())])

    def write(name: str, values: np.ndarray) -> None:
        others = (f"{value:.6f}" for value in values) if probabilities else ()
        table.writerow([name, classes[int(values.argmax())], f"{values.max():.6f}", *others])

    return write


def json_writer(file: IO[str], classes: tuple[str, ...], *, probabilities: bool) -> Writer:
    """Write a JSON object per line with file, label and confidence, optionally with the probabilities by class."""

    def write(name: str, values: np.ndarray) -> None:
        row = {"file": name, "label": classes[int(values.argmax())], "confidence": round(float(values.max()), 6)}
        others = {"probabilities": dict(zip(classes, values.round(6).tolist(), strict=True))} if probabilities else {}
        file.write(json.dumps({**row, **others}) + "\n")

    return write


@contextmanager
def folder_writer(directory: Path, classes: tuple[str, ...], *, link: bool) -> Iterator[Writer]:
    """Copy or link the images into a folder for each class; the directory appears when it is complete."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{setting('sort_into')} {directory} exists and is not empty; choose another directory")
    if directory.resolve() == Path.cwd():  # it is replaced by the complete directory, so nobody may be in it
        raise ConfigError(f"{setting('sort_into')} {directory} is the current directory; choose a new one")
    temporary = directory.with_name(f".{directory.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)

    def write(name: str, values: np.ndarray) -> None:
        folder = temporary / _folder_name(classes[int(values.argmax())])
        folder.mkdir(exist_ok=True)
        target = _unused(folder / Path(name).name)
        if link:
            target.symlink_to(Path(name).resolve())
        else:
            shutil.copy2(name, target)

    try:
        yield write
        temporary.replace(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _folder_name(label: str) -> str:
    """The name of the folder for a class."""
    name = label.replace("/", "_").replace(os.sep, "_").replace("\0", "_")
    return f"_{name}" if name in ("", ".", "..") else name


def _unused(path: Path) -> Path:
    """The path, or one with a number added if the file exists."""
    number, unused = 1, path
    while os.path.lexists(unused):
        number += 1
        unused = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return unused
