"""Predictions for any number of image files: decoded, predicted and written batch by batch."""

import codecs
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

from rankingmatch.core.atomic import create_directory_beside, unused_path
from rankingmatch.core.errors import ConfigError, DataError, setting
from rankingmatch.core.names import file_cell, folder_names, row_writer, text_cell
from rankingmatch.data import ImageFile, decode_files, first_few, images_below, is_place, printable
from rankingmatch.networks import predict_probabilities
from rankingmatch.networks.onnx import accelerated
from rankingmatch.runs.model import ModelInfo

__all__ = ["FilePredictions", "csv_writer", "image_files", "json_writer", "predict_files", "write_predictions"]

Writer = Callable[[ImageFile, np.ndarray], None]  # takes a file and its (classes,) probabilities


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

    files: tuple[ImageFile, ...]
    probabilities: np.ndarray
    skipped: tuple[tuple[ImageFile, str], ...]


def predict_files(
    model: nn.Module, info: ModelInfo, files: Iterable[ImageFile], device: torch.device, count: int = 0
) -> Iterator[FilePredictions]:
    """Predict image files in order, batch by batch.

    Parameters
    ----------
    model, info
        A trained model, as `load_model` returns it.
    files
        Paths of images, or images in shards; they are resized like the training images.
    device
        Where to compute.
    count
        The number of files, if it is known.
    """
    model = accelerated(model, count)
    for chunk in decode_files(files, info.shape, crop=info.crop):
        probabilities = np.empty((0, len(info.classes)), np.float32)
        if chunk.files:
            probabilities = predict_probabilities(model, chunk.images, device)
        yield FilePredictions(chunk.files, probabilities, chunk.bad)


def image_files(names: Iterable[str], standard_input: Iterable[str] = ()) -> Iterator[ImageFile]:
    """The given files, and all images in the given shards and folders; `-` stands for the names on standard input."""
    for name in names:
        if name == "-":
            yield from standard_input
        elif not name:
            raise DataError("the name of an image or folder is empty; give another one")
        elif is_place(name):
            yield from images_below(Path(name))
        elif os.path.lexists(name):
            yield name
        else:
            raise DataError(f"there is no file or folder {printable(name)}")


def read_names(file: IO[bytes], end: bytes = b"\n") -> Iterator[str]:
    """The file names in a stream, separated by line breaks or another byte."""
    rest, lines, first = b"", end == b"\n", True
    while block := file.read1(1 << 16) if hasattr(file, "read1") else file.read(1 << 16):
        *whole, rest = (rest + block).split(end)
        for name in whole:
            yield from _name(name, lines, first)
            first = False
    yield from _name(rest, lines, first)


def _name(name: bytes, in_lines: bool, first: bool) -> Iterator[str]:
    """A name from a stream, unless it is empty; lines of other systems have a byte order mark and carriage returns."""
    if in_lines:
        name = name.removesuffix(b"\r").removeprefix(codecs.BOM_UTF8 if first else b"")
    if name:
        yield os.fsdecode(name)


def write_predictions(
    batches: Iterable[FilePredictions], writers: Iterable[Writer]
) -> tuple[int, list[tuple[ImageFile, str]]]:
    """Pass every prediction to every writer; returns the number of images, and the skipped files with the reasons.

    Raises DataError if more than half of the files are skipped.
    """
    writers = tuple(writers)
    count = 0
    skipped: list[tuple[ImageFile, str]] = []
    for batch in batches:
        for file, probabilities in zip(batch.files, batch.probabilities, strict=True):
            for write in writers:
                write(file, probabilities)
        count += len(batch.files)
        skipped += batch.skipped
    if not count and not skipped:
        raise DataError(
            "there are no images to predict; give image files (JPEG, PNG, WebP and the like, but not HEIC), or folders "
            "with images"
        )
    if len(skipped) > count:
        raise DataError(
            f"more than half of the {count + len(skipped):,} files cannot be read: {describe_skipped(skipped)}"
        )
    return count, skipped


def describe_skipped(skipped: list[tuple[ImageFile, str]]) -> str:
    """The first skipped files and the reasons, on one line."""
    return first_few([f"{file} {reason}" for file, reason in skipped])


def csv_writer(
    output: IO[str], classes: tuple[str, ...], *, probabilities: bool, show: Callable[[str], str] = str
) -> Writer:
    """Write CSV rows of file, label and confidence, optionally with the probability of every class.

    Names that a spreadsheet would take for formulas are changed as `text_cell` and `file_cell` do it; on a terminal,
    `show` makes them printable.
    """
    write_row, names = row_writer(output), [show(text_cell(name)) for name in classes]
    write_row(["file", "label", "confidence", *(names if probabilities else ())])

    def write(file: ImageFile, values: np.ndarray) -> None:
        others = (f"{value:.6f}" for value in values) if probabilities else ()
        write_row([show(file_cell(str(file))), names[int(values.argmax())], f"{values.max():.6f}", *others])

    return write


def json_writer(output: IO[str], classes: tuple[str, ...], *, probabilities: bool) -> Writer:
    """Write a JSON object per line with file, label and confidence, optionally with the probabilities by class."""

    def write(file: ImageFile, values: np.ndarray) -> None:
        row = {"file": str(file), "label": classes[int(values.argmax())], "confidence": round(float(values.max()), 6)}
        others = {"probabilities": dict(zip(classes, values.round(6).tolist(), strict=True))} if probabilities else {}
        output.write(json.dumps({**row, **others}) + "\n")

    return write


@contextmanager
def folder_writer(directory: Path, classes: tuple[str, ...], *, link: bool) -> Iterator[Writer]:
    """Copy or link the images into a folder for each class; the directory appears when it is complete.

    Images in shards are always copied.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{setting('sort_into')} {directory} exists and is not empty; choose another directory")
    if directory.resolve() == Path.cwd():  # it is replaced by the complete directory, so nobody may be in it
        raise ConfigError(f"{setting('sort_into')} {directory} is the current directory; choose a new one")
    temporary = create_directory_beside(directory)
    folders = folder_names(classes)

    def write(file: ImageFile, values: np.ndarray) -> None:
        folder = temporary / folders[int(values.argmax())]
        folder.mkdir(exist_ok=True)
        target = unused_path(folder / Path(str(file)).name)
        if not isinstance(file, str):
            target.write_bytes(file.read())
        elif link:
            target.symlink_to(Path(file).resolve())
        else:
            shutil.copy2(file, target)

    try:
        yield write
        temporary.replace(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
