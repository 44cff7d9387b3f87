"""A model's predictions for image files, however many: decoded, predicted and written as they come."""

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

from rankingmatch.runs.checkpoint import ModelCard
from rankingmatch.data import decode_files, first_few, images_below, printable
from rankingmatch.core.errors import ConfigError, DataError
from rankingmatch.networks import outputs

Writer = Callable[[str, np.ndarray], None]  # takes a file and its (classes,) probabilities


class Predicted(NamedTuple):
    """Some files with their (n, classes) probabilities, and those that are no images, with the reason."""

    files: tuple[str, ...]
    probabilities: np.ndarray
    bad: tuple[tuple[str, str], ...]


def predictions(model: nn.Module, card: ModelCard, files: Iterable[str], device: torch.device) -> Iterator[Predicted]:
    """What a model says of image files, in order; they are brought to its shape as those it was trained on were."""
    for chunk in decode_files(files, (card.height, card.width, card.channels)):
        nothing = np.empty((0, len(card.classes)), np.float32)
        rows = [output.logits.softmax(1).cpu().numpy() for output in outputs(model, chunk.images, device)]
        yield Predicted(chunk.files, np.concatenate([nothing, *rows]), chunk.bad)


def image_files(names: Iterable[str], given: Iterable[str] = ()) -> Iterator[str]:
    """The files of these names, and the images below those that are folders; `-` stands for the given names."""
    for name in names:
        if name == "-":
            yield from given
        elif Path(name).is_dir():
            yield from images_below(Path(name))
        elif os.path.lexists(name):
            yield name
        else:
            raise DataError(f"there is no file or folder {printable(name)}")


def names_in(file: IO[bytes], end: bytes = b"\n") -> Iterator[str]:
    """File names, each up to the next line break, or another byte."""
    rest = b""
    while block := file.read1(1 << 16) if hasattr(file, "read1") else file.read(1 << 16):
        *whole, rest = (rest + block).split(end)
        yield from (os.fsdecode(name.removesuffix(b"\r")) for name in whole if name)
    if rest:
        yield os.fsdecode(rest)


def write_predictions(predicted: Iterable[Predicted], writers: Iterable[Writer]) -> tuple[int, list[tuple[str, str]]]:
    """Hand every prediction to every writer; how many there were, and which files are no images.

    DataError if these are more than half.
    """
    writers = tuple(writers)
    count = 0
    bad: list[tuple[str, str]] = []
    for some_files in predicted:
        for file, probabilities in zip(some_files.files, some_files.probabilities, strict=True):
            for write in writers:
                write(file, probabilities)
        count += len(some_files.files)
        bad += some_files.bad
    if not count and not bad:
        raise DataError("there are no images to predict; give files or folders that have some")
    if len(bad) > count:
        raise DataError(f"more than half of the {count + len(bad):,} files are bad: {skipped_words(bad)}")
    return count, bad


def skipped_words(bad: list[tuple[str, str]]) -> str:
    """The files that were left out, and why, on one line."""
    return first_few([f"{file} {reason}" for file, reason in bad])


def csv_writer(file: IO[str], classes: tuple[str, ...], *, probabilities: bool) -> Writer:
    """Rows of file, label, confidence, and the probability of every class if these are wanted."""
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["file", "label", "confidence", *(classes if probabilities else ())])

    def write(name: str, values: np.ndarray) -> None:
        others = (f"{value:.6f}" for value in values) if probabilities else ()
        table.writerow([name, classes[int(values.argmax())], f"{values.max():.6f}", *others])

    return write


def json_writer(file: IO[str], classes: tuple[str, ...], *, probabilities: bool) -> Writer:
    """An object per line with file, label, confidence, and the probabilities by class if these are wanted."""

    def write(name: str, values: np.ndarray) -> None:
        row = {"file": name, "label": classes[int(values.argmax())], "confidence": round(float(values.max()), 6)}
        others = {"probabilities": dict(zip(classes, values.round(6).tolist(), strict=True))} if probabilities else {}
        file.write(json.dumps({**row, **others}) + "\n")

    return write


@contextmanager
def sorting_into(directory: Path, classes: tuple[str, ...], *, link: bool) -> Iterator[Writer]:
    """Copies of the images, or links to them, in a folder for each class; the directory appears when all are there."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"--sort-into {directory} is there and not empty; choose another or remove it")
    if directory.resolve() == Path.cwd():  # which takes its place when all is there, and nobody should be in it then
        raise ConfigError(f"--sort-into {directory} is where you are; name a directory that is not there yet")
    temporary = directory.with_name(f".{directory.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)

    def write(name: str, values: np.ndarray) -> None:
        place = temporary / _folder_name(classes[int(values.argmax())])
        place.mkdir(exist_ok=True)
        target = _free(place / Path(name).name)
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
    """A class name that can name a folder."""
    name = label.replace("/", "_").replace(os.sep, "_").replace("\0", "_")
    return f"_{name}" if name in ("", ".", "..") else name


def _free(path: Path) -> Path:
    """The path, or if there is such a file, one with a number."""
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free
