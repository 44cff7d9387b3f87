"""Predictions for any number of image files: decoded, predicted and written batch by batch, here or on Ray."""

import codecs
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import torch
from torch import nn

from rankingmatch.core.atomic import create_directory_beside, opened_output, unused_path
from rankingmatch.core.errors import ConfigError, DataError, setting
from rankingmatch.core.imports import files_are_trusted, trust_files
from rankingmatch.core.names import file_cell, folder_names, row_writer, text_cell
from rankingmatch.core.options import absolute_path
from rankingmatch.data import (
    ImageFile,
    Progress,
    decode_files,
    first_few,
    images_below,
    is_place,
    no_progress,
    printable,
    under_way,
)
from rankingmatch.data.decode import files_at_once, image_suffixes
from rankingmatch.networks import predict_probabilities
from rankingmatch.networks.onnx import accelerated
from rankingmatch.runs.directory import Run
from rankingmatch.runs.model import ModelInfo
from rankingmatch.runs.ray import map_in_order, ray_connection, require_place

__all__ = ["FilePredictions", "predict", "predict_files", "predict_into", "write_predictions"]

Writer = Callable[[ImageFile, np.ndarray], None]  # takes a file and its (classes,) probabilities
GROUPS = 8  # in a piece of work on a cluster, of files that are decoded together


class FilePredictions(NamedTuple):
    """Predictions for image files.

    Attributes
    ----------
    files
        The image files.
    probabilities
        Their (n, classes) probabilities.
    skipped
        The files that are not images, each with the reason.
    classes
        The names of the classes.
    """

    files: tuple[ImageFile, ...]
    probabilities: np.ndarray
    skipped: tuple[tuple[ImageFile, str], ...]
    classes: tuple[str, ...] = ()

    @classmethod
    def together(cls, batches: Iterable["FilePredictions"]) -> "FilePredictions":
        """The predictions of at least one batch as one."""
        files, probabilities, skipped, classes = zip(*batches, strict=True)
        return cls(tuple(chain(*files)), np.concatenate(probabilities), tuple(chain(*skipped)), classes[0])

    @property
    def labels(self) -> list[str]:
        """The most probable class of each file."""
        return [self.classes[number] for number in self.probabilities.argmax(1)]


def predict(
    run: Run | str | Path,
    images: str | Path | Iterable[str | Path],
    *,
    out: str | Path | None = None,
    probabilities: bool = False,
    sort_into: str | Path | None = None,
    link: bool = False,
    best: bool = False,
    device: str | None = None,
    trust: bool = False,
) -> FilePredictions:
    """Predict labels for image files with the model of a trained run.

    Parameters
    ----------
    run
        A run, or its directory.
    images
        Image files, folders and shards, or a single one.
    out
        Also write a CSV table of file, label and confidence to this file.
    probabilities
        Whether the table has the probabilities of all classes, too.
    sort_into
        Also copy the images into a folder for each class in this new directory.
    link
        Link them there instead.
    best
        Whether to use the weights with the lowest validation error, instead of the last ones.
    device
        Where to compute; by default as the run did.
    trust
        Whether a network that the run names by its import path may be imported.

    Returns
    -------
    FilePredictions
        The files, their labels and probabilities, and the files that were skipped because they are not images.

    Raises
    ------
    RankingMatchError
        If the run has no model, there are no images, or more than half of the files cannot be read.

    Examples
    --------
    >>> import rankingmatch as rm
    >>> found = rm.predict("runs/photos", "holiday", out="holiday.csv")  # doctest: +SKIP
    >>> dict(zip(found.files, found.labels))  # doctest: +SKIP
    """
    batches = predict_into(
        Run.at(run, trust=trust),
        [str(place) for place in ([images] if isinstance(images, str | Path) else images)],
        None if out is None else Path(out),
        probabilities=probabilities,
        sort_into=None if sort_into is None else Path(sort_into),
        link=link,
        best=best,
        device=device,
    )
    return FilePredictions.together(batches)


def predict_into(
    run: Run,
    images: Sequence[str],
    out: Path | IO[bytes] | None,
    *,
    as_json: bool = False,
    probabilities: bool = False,
    sort_into: Path | None = None,
    link: bool = False,
    best: bool = False,
    device: str | None = None,
    on: str = "here",
    ray_address: str | None = None,
    standard_input: Iterable[str] = (),
    progress: Progress = no_progress,
) -> Iterator[FilePredictions]:
    """Predict images and write a table into a file, and the images into folders, as `predict` does, in little memory.

    Yields each batch when it is written. `-` stands for the names on standard input.
    """
    if link and sort_into is None:
        raise ConfigError(f"{setting('link')} needs {setting('sort_into')} DIR")
    require_place("on", on, ray_address)
    if isinstance(out, Path):
        run.require_output(out)
        if out.suffix.lower() in image_suffixes() - {""}:
            raise ConfigError(
                f"{setting('out')} {out} has the name of an image, which would be lost; name a table, such as t.csv"
            )
    where = run.config().device(device)
    model, info = run.load_model(where, best=best)
    with ExitStack() as stack:
        writers = []
        if sort_into is not None:
            writers.append(stack.enter_context(folder_writer(sort_into, info.classes, link=link)))
        if out is not None:
            make_writer = json_writer if as_json else csv_writer
            writers.append(make_writer(stack.enter_context(_opened_table(out)), info.classes, probabilities))
        with under_way(progress, "counting the images"):
            count = None if "-" in images else sum(1 for _ in image_files(images))
        files = image_files(images, standard_input)
        if on == "ray":
            batches = predict_on_ray(run, info, files, best=best, device=device, count=count or 0, address=ray_address)
        else:
            batches = predict_files(model, info, files, where, count or 0)
        done, visible = 0, not (out is None or isinstance(out, Path)) and out.isatty()
        for batch in write_predictions(batches, writers):
            yield batch
            done += len(batch.files) + len(batch.skipped)
            if not visible:  # a progress bar would mix with the rows
                progress("predicting", done, count)


def predict_files(
    model: nn.Module, info: ModelInfo, files: Iterable[ImageFile], device: torch.device, count: int = 0
) -> Iterator[FilePredictions]:
    """Predict image files in order, batch by batch, with a model as `load_model` returns it.

    They may be in shards, and are resized like the training images. `count` is their number, if it is known.
    """
    model = accelerated(model, count)
    for chunk in decode_files(files, info.shape, crop=info.crop):
        probabilities = np.empty((0, len(info.classes)), np.float32)
        if chunk.files:
            probabilities = predict_probabilities(model, chunk.images, device)
        yield FilePredictions(chunk.files, probabilities, chunk.bad, info.classes)


# --- names of files ------------------------------------------------------------------------------------------


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
    """The file names in a stream, separated by line breaks or another byte; empty ones are left out.

    Lines of other systems have a byte order mark and carriage returns.
    """
    rest, first = b"", True
    while True:
        block = file.read1(1 << 16) if hasattr(file, "read1") else file.read(1 << 16)
        *names, rest = (rest + block).split(end)
        for name in [*names, *([] if block else [rest])]:
            if end == b"\n":
                name = name.removesuffix(b"\r").removeprefix(codecs.BOM_UTF8 if first else b"")
            first = False
            if name:
                yield os.fsdecode(name)
        if not block:
            return


# --- writing -------------------------------------------------------------------------------------------------


def write_predictions(batches: Iterable[FilePredictions], writers: Sequence[Writer]) -> Iterator[FilePredictions]:
    """Pass every prediction to every writer, and on.

    Raises DataError at the end if there are no images, or if more than half of the files were skipped.
    """
    count = 0
    skipped: list[tuple[ImageFile, str]] = []
    for batch in batches:
        for file, probabilities in zip(batch.files, batch.probabilities, strict=True):
            for write in writers:
                write(file, probabilities)
        count += len(batch.files)
        skipped += batch.skipped
        yield batch
    if not count and not skipped:
        raise DataError(
            "there are no images to predict; give image files (JPEG, PNG, WebP and the like, but not HEIC), or folders "
            "with images"
        )
    if len(skipped) > count:
        raise DataError(
            f"more than half of the {count + len(skipped):,} files cannot be read: {describe_skipped(skipped)}"
        )


def describe_skipped(skipped: Iterable[tuple[ImageFile, str]]) -> str:
    """The first skipped files and the reasons, on one line."""
    return first_few([f"{file} {reason}" for file, reason in skipped])


def csv_writer(output: IO[str], classes: tuple[str, ...], probabilities: bool = False) -> Writer:
    """Write CSV rows of file, label and confidence, optionally with the probability of every class.

    Names that a spreadsheet would take for formulas are changed as `text_cell` and `file_cell` do it; on a terminal,
    they are printable.
    """
    show = printable if output.isatty() else str
    write_row, names = row_writer(output), [show(text_cell(name)) for name in classes]
    write_row(["file", "label", "confidence", *(names if probabilities else ())])

    def write(file: ImageFile, values: np.ndarray) -> None:
        others = (f"{value:.6f}" for value in values) if probabilities else ()
        write_row([show(file_cell(str(file))), names[int(values.argmax())], f"{values.max():.6f}", *others])

    return write


def json_writer(output: IO[str], classes: tuple[str, ...], probabilities: bool = False) -> Writer:
    """Write a JSON object per line with file, label and confidence, optionally with the probabilities by class."""

    def write(file: ImageFile, values: np.ndarray) -> None:
        row = {"file": str(file), "label": classes[int(values.argmax())], "confidence": round(float(values.max()), 6)}
        others = {"probabilities": dict(zip(classes, values.round(6).tolist(), strict=True))} if probabilities else {}
        output.write(json.dumps({**row, **others}) + "\n")

    return write


@contextmanager
def _opened_table(out: Path | IO[bytes]) -> Iterator[IO[str]]:
    """A file that appears when it is complete, or an open one; names that are not text are written as bytes."""
    with opened_output(out) if isinstance(out, Path) else nullcontext(out) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True)
        try:
            yield text
        finally:
            text.detach()


@contextmanager
def folder_writer(directory: Path, classes: tuple[str, ...], *, link: bool) -> Iterator[Writer]:
    """Copy or link the images into a folder for each class; the directory appears when it is complete.

    Images in shards are always copied.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{setting('sort_into')} {directory} exists and is not empty; choose another directory")
    # It is replaced by the complete directory, so nobody may be in it.
    if absolute_path("sort_into", directory) == Path.cwd():
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


# --- on a cluster --------------------------------------------------------------------------------------------


def predict_on_ray(
    run: Run,
    info: ModelInfo,
    files: Iterable[ImageFile],
    *,
    best: bool = False,
    device: str | None = None,
    count: int = 0,
    address: str | None = None,
) -> Iterator[FilePredictions]:
    """Predict image files in the order and the batches of `predict_files`, in pieces on any machine of a Ray cluster.

    All machines see the files and the run, and have rankingmatch installed. If a worker is lost, its piece alone is
    predicted again. With the device "cuda", each piece takes a GPU; without an address, this machine is the cluster.
    """
    names, size = iter(files), GROUPS * files_at_once(info.shape)
    pieces = iter(lambda: list(islice(names, size)), [])
    trust = run.trust or files_are_trusted()
    with ray_connection(address) as ray:
        arguments = ((run.path, best, device, count, piece, Path.cwd(), trust) for piece in pieces)
        for batches in map_in_order(ray, _predict_piece, arguments, device or ""):
            yield from batches


def _predict_piece(
    run: Path, best: bool, device: str | None, count: int, files: list[ImageFile], directory: Path, trust: bool
) -> list[FilePredictions]:
    """In a worker: the predictions of some files, named as seen from a directory."""
    os.chdir(directory)
    torch.set_num_threads(1)
    if trust:
        trust_files()
    model, info, where = _loaded_model(run, best, device)
    return list(predict_files(model, info, files, where, count))


@lru_cache(maxsize=1)
def _loaded_model(run: Path, best: bool, device: str | None) -> tuple[nn.Module, ModelInfo, torch.device]:
    """The model, kept for the next piece of the same worker."""
    where = Run(run).config().device(device)
    return *Run(run).load_model(where, best=best), where
