"""A dataset by name or by folder: folders are read into the same cache, and choose settings by what they hold."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.core.errors import ConfigError, DataError, unknown_name
from rankingmatch.data.benchmarks import BENCHMARKS, Benchmark
from rankingmatch.data.cache import FORMAT, cache_place, read_about, read_cache, write_cache
from rankingmatch.data.decode import Header, UnreadableError, decoded, header
from rankingmatch.data.folder import Folder, printable, scan, some
from rankingmatch.data.formats import Block, Decoded
from rankingmatch.data.presets import suggested_settings
from rankingmatch.data.split import Dataset

log = logging.getLogger(__name__)

USUAL_SIDE = 32  # pixels: for few labels and a CPU, larger pictures took longer and were recognised no better
PROBED = 400  # files whose headers decide the image size
PLACES = ("unlabeled", "labels_csv", "image_size")  # the settings that say what a folder holds
PATHS = ("unlabeled", "labels_csv", "split", "weights", "data_dir")  # those that are paths


def source(
    name: str, unlabeled: str | None = None, labels_csv: str | None = None, image_size: int | None = None
) -> Benchmark:
    """The dataset of a name, or else the folder at a path; `./name` is always the folder."""
    title(name)
    if name not in BENCHMARKS:
        folder = scan(Path(name), *(None if place is None else Path(place) for place in (unlabeled, labels_csv)))
        return _as_benchmark(folder, image_size)
    for flag, value in (("--unlabeled", unlabeled), ("--labels-csv", labels_csv)):
        if value is not None:
            raise ConfigError(f"{flag} goes with a folder of images, and {name} is a dataset; leave it out")
    return BENCHMARKS[name]


def is_benchmark(name: str) -> bool:
    """Whether a name is that of a dataset; any other is the path of a folder."""
    return name in BENCHMARKS


def title(name: str) -> str:
    """How a dataset or folder is called in tables; ConfigError if there is none of that name."""
    if name in BENCHMARKS:
        return BENCHMARKS[name].title
    if not Path(name).is_dir():
        if Path(name).name != name:
            raise ConfigError(f"there is no folder {name}")
        raise unknown_name("dataset", name, BENCHMARKS, " (there is no such folder, either)")
    return Path(name).resolve().name


def whole_paths(dataset: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A dataset and settings whose paths hold from everywhere; names stay what they are."""
    places = {name: str(Path(given[name]).resolve()) for name in PATHS if given.get(name) is not None}
    is_folder = dataset not in BENCHMARKS and Path(dataset).is_dir()
    return str(Path(dataset).resolve()) if is_folder else dataset, {**given, **places}


# --- settings ------------------------------------------------------------------------------------------------


def _as_benchmark(folder: Folder, image_size: int | None) -> Benchmark:
    headers = _headers(folder)
    side = image_size or _side(headers)
    channels = 1 if all(one.grey for one in headers) else 3
    counts = {part: len(files) for part, files in folder.parts.items()}
    return Benchmark(
        title=folder.root.resolve().name,
        description=_description(folder, headers, channels),
        shape=(side, side, channels),
        classes=len(folder.classes),
        evaluated=counts.get("validation", 0) + counts.get("test", 0),
        loader=lambda _, size: _load(folder, size or side, channels),
        preset=_preset(folder, side, channels),
    )


def _headers(folder: Folder) -> list[Header]:
    """The headers of some training images, spread over all."""
    files = folder.parts["train"]
    headers = []
    for file, _ in files[:: max(1, len(files) // PROBED)]:
        try:
            headers.append(header(folder.path(file)))
        except UnreadableError:
            continue
    if not headers:
        file = files[0][0]
        raise DataError(f"{folder.root} has no image that can be read; {printable(file)}, for one, cannot")
    return headers


def _side(headers: list[Header]) -> int:
    """The median of the shorter sides, and no more than `USUAL_SIDE`."""
    return min(USUAL_SIDE, int(np.median([min(one.height, one.width) for one in headers])))


def _preset(folder: Folder, side: int, channels: int) -> dict[str, Any]:
    """Settings for images of this kind and number; the docs say why."""
    labels = folder.counts()
    holding_out = "validation" not in folder.parts and min(labels) >= 10
    return {
        "image_size": side,
        **suggested_settings(side, side, channels, len(folder.parts["train"])),
        "validation": min(1000, sum(labels) // 5) if holding_out else 0,
    }


def _description(folder: Folder, headers: list[Header], channels: int) -> str:
    counts = folder.counts()
    unlabeled = len(folder.parts["train"]) - sum(counts)
    held_out = [f"{len(folder.parts.get(part, ())):,} {part}" for part in ("validation", "test")]
    heights, widths = ([getattr(one, side) for one in headers] for side in ("height", "width"))
    sizes = f"{min(heights)}×{min(widths)}"
    if (max(heights), max(widths)) != (min(heights), min(widths)):
        sizes = f"{int(np.median(heights))}×{int(np.median(widths))} ({sizes} to {max(heights)}×{max(widths)})"
    names = ", ".join(f"{printable(name)} {count:,}" for name, count in zip(folder.classes, counts, strict=True))
    others = f"; {folder.others:,} files are no images by their names" if folder.others else ""
    return (
        f"{len(counts)} classes: {names}\n"
        f"{sum(counts):,} labeled, {unlabeled:,} unlabeled, {', '.join(held_out)} images, {sizes} pixels, "
        f"{'grey' if channels == 1 else 'colour'}{others}"
    )


# --- pixels --------------------------------------------------------------------------------------------------


class _ColourFoundError(Exception):
    """The images that were looked at first are grey, but not all."""


def _load(folder: Folder, side: int, channels: int) -> Dataset:
    """The images, decoded the first time and memory-mapped as long as no file changes; says what is wrong with them."""
    directory = cache_place() / f"folder-{folder.fingerprint(exactly=True)}-{side}-{FORMAT}"
    if not (directory / "about.json").exists():
        try:
            write_cache(directory, _decoding(folder, side, channels))
        except _ColourFoundError:
            write_cache(directory, _decoding(folder, side, channels=3))
    about = read_about(directory)
    for note in folder.notes:
        log.warning("%s", note)
    if about["repeated"]:
        pairs = [f"{mine} = {theirs}" for mine, theirs in about["repeated"]]
        log.warning("%d training images are evaluated on, too: %s", len(pairs), some(pairs))
    skipped = tuple((file, reason) for file, reason in about["skipped"])
    if skipped:
        log.warning("%d files are left out: %s", len(skipped), some([f"{file} {why}" for file, why in skipped]))
    return replace(read_cache(directory), fingerprint=folder.fingerprint(), skipped=skipped)


def _decoding(folder: Folder, side: int, channels: int) -> Decoded:
    notes: dict[str, Any] = {"skipped": [], "repeated": []}
    return Decoded(folder.classes, _blocks(folder, (side, side, channels), notes), notes=notes)


def _blocks(folder: Folder, shape: tuple[int, int, int], notes: dict[str, Any]) -> Iterator[Block]:
    """All images, part by part; at the end, `notes` has the files left out and those that are in two parts."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    total = sum(map(len, folder.parts.values()))
    seen: dict[str, list[tuple[int, str]]] = {}  # checksums of the pixels
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"reading {folder.root.name}", total=total)
        for part, files in folder.parts.items():
            label_of = {folder.path(file): label for file, label in files}
            found = seen.setdefault(part, [])
            for chunk in decoded(label_of, shape):
                if shape[2] == 1 and not chunk.grey:
                    raise _ColourFoundError
                notes["skipped"] += [[_shown(folder, file), reason] for file, reason in chunk.bad]
                if 2 * len(notes["skipped"]) > total:
                    names = [f"{file} {why}" for file, why in notes["skipped"]]
                    raise DataError(f"more than half of the {total:,} files in {folder.root} are bad: {some(names)}")
                found += zip(map(_checksum, chunk.images), chunk.files, strict=True)
                labels = np.array([label_of[file] for file in chunk.files], dtype=np.int64)
                bar.advance(task, len(chunk.files) + len(chunk.bad))
                yield Block(part, chunk.images, labels)
            _check_labels(folder, part, {label_of[file] for _, file in found})
    known = {checksum: file for part in ("validation", "test") for checksum, file in seen.get(part, ())}
    notes["repeated"] = [
        [_shown(folder, file), _shown(folder, known[checksum])] for checksum, file in seen["train"] if checksum in known
    ]


def _check_labels(folder: Folder, part: str, readable: set[int]) -> None:
    for label, name in enumerate(folder.classes):
        if part == "train" and label not in readable:
            raise DataError(f"{folder.root}: no image of the class '{printable(name)}' can be read; add some")


def _checksum(image: np.ndarray) -> int:
    return hash(image.tobytes())  # 64 bits, and twice as fast as the quickest checksum of hashlib


def _shown(folder: Folder, path: str) -> str:
    return printable(path.removeprefix(f"{folder.root}/"))
