"""Sources by their names, and the folder of images, or shards: read once, with settings that follow from its images."""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rankingmatch.core.errors import ConfigError, DataError, setting, unknown_name
from rankingmatch.core.names import first_few, printable
from rankingmatch.core.options import absolute_path
from rankingmatch.data.benchmarks import BENCHMARKS
from rankingmatch.data.cache import FORMAT, cache_directory, read_or_write, write_cache
from rankingmatch.data.dataset import UNLABELED, Dataset, Progress, Source, no_progress, under_way
from rankingmatch.data.decode import UnreadableError, decode_files, read_header
from rankingmatch.data.folder_contents import FolderContents, describe_others, scan_folder
from rankingmatch.data.readers import Chunk, DatasetStream
from rankingmatch.data.shards import shards_at

log = logging.getLogger(__name__)

LARGEST_DEFAULT_SIDE = 32  # pixels: with few labels and on a CPU, larger images took longer and gave no lower error
HEADERS_READ = 400  # of as many files (up to twice as many) the headers decide the image size
SAME_IMAGES = {
    "repeated": "%d training images are also among the evaluation images: %s",
    "contradictory": "%d images are in two classes: %s",
    "shared": "%d test images are also validation images, so that they are no independent test: %s",
}
ENOUGH_LABELS = 10  # labels per class from which on some are held out for validation
TINY, MEDIUM = 16, 48  # the largest sides, in pixels, for which a small and a medium network are used
EPOCHS = 60  # how often each unlabeled image is seen
UNLABELED_PER_LABELED = 7  # in a batch


@dataclass(frozen=True)
class ImageFolder(Source):
    """A folder of images, or shards, scanned; `shape` is the median of the shorter sides, but not large."""

    is_folder: ClassVar[bool] = True
    contents: FolderContents
    median_side: int  # of the shorter sides of some training images, spread over all of them

    @property
    def side(self) -> int:
        """The median of the images' shorter sides in pixels."""
        return self.median_side

    @property
    def training(self) -> int | None:
        """The number of training images."""
        return len(self.contents.parts["train"])

    def preset(self, image_size: int | None = None) -> dict[str, Any]:
        """Return settings for images of this kind and number, ``image_size`` among them."""
        side = image_size or self.shape[0]
        labels = self.contents.counts()
        holding_out = "validation" not in self.contents.parts and min(labels) >= ENOUGH_LABELS
        return {
            "image_size": side,
            **suggested_settings(side, side, self.shape[2], len(self.contents.parts["train"])),
            "validation": min(1000, sum(labels) // 5) if holding_out else 0,
        }

    def load(
        self,
        data_dir: Path | None = None,
        image_size: int | None = None,
        progress: Progress = no_progress,
        *,
        crop: bool = False,
    ) -> Dataset:
        """Read the images, decoded the first time and memory-mapped as long as no file changes.

        Files that cannot be read are skipped; a warning is logged for them and for whatever else looks wrong. It is a
        DataError if most of the files, or all of a class, cannot be read. `data_dir` is ignored.
        """
        contents, (side, _, channels) = self.contents, self.shape
        side = image_size or side
        size = f"{side}-crop" if crop else str(side)
        with under_way(progress, f"looking for changes in {contents.root.name}"):
            fingerprint, exactly = contents.fingerprint(), contents.fingerprint(exactly=True)
        directory = cache_directory() / f"folder-{exactly}-{size}-{FORMAT}"

        def decode(channels: int = channels) -> None:
            notes: dict[str, Any] = {}
            chunks = _chunks(contents, (side, side, channels), crop, notes, progress)
            try:
                write_cache(directory, DatasetStream(contents.classes, chunks, notes=notes))
            except _ColorFoundError:
                decode(channels=3)

        dataset, metadata = read_or_write(directory, decode)
        for note in contents.notes:
            log.warning("%s", printable(note))
        for key, problem in SAME_IMAGES.items():
            if pairs := [f"{mine} = {theirs}" for mine, theirs in metadata[key]]:
                log.warning(problem, len(pairs), first_few(pairs))
        skipped = tuple((file, reason) for file, reason in metadata["skipped"])
        if skipped:
            reasons = first_few([f"{file} {reason}" for file, reason in skipped])
            log.warning("skipped %d files: %s", len(skipped), reasons)
        return replace(dataset, fingerprint=fingerprint, skipped=skipped)


def find_source(name: str, *, unlabeled: str | None = None, labels_csv: str | None = None) -> Source:
    """Find the dataset called `name`, or else the folder or shard at that path, which is scanned once.

    ``./name`` is always a path. Only with one of these, another folder (or shards) may have unlabeled images, and a CSV
    file the labels.
    """
    if not name:
        raise ConfigError(f"{setting('data')} is empty; give a dataset or a folder of images")
    given = {"unlabeled": unlabeled, "labels_csv": labels_csv}
    if name in BENCHMARKS:
        for option, path in given.items():
            if path is not None:
                raise ConfigError(f"{setting(option)} is for a folder of images, but {name} is a dataset; leave it out")
        return BENCHMARKS[name]
    if is_place(name):
        others = (None if path is None else absolute_path(option, path) for option, path in given.items())
        return read_folder(absolute_path("data", name), *others)
    if Path(name).is_file():
        raise ConfigError(f"{name} is a file; give a folder of images, or a shard, whose name ends in .tar or .parquet")
    if Path(name).name != name:
        raise ConfigError(f"there is no folder {name}")
    raise unknown_name("dataset", name, BENCHMARKS, " (there is no such folder, either)")


def is_place(name: str) -> bool:
    """Whether there is a folder or a shard at a path."""
    return Path(name).is_dir() or bool(shards_at(Path(name)))


def dataset_title(name: str) -> str:
    """The `title` of the source of this name, whether or not the folder is there."""
    return BENCHMARKS[name].title if name in BENCHMARKS else Path(os.path.realpath(name)).name


def read_folder(root: Path, unlabeled: Path | None = None, labels_csv: Path | None = None) -> ImageFolder:
    """Scan a folder or shards, and read the headers of some of the training images."""
    contents = scan_folder(root, unlabeled, labels_csv)
    files = contents.parts["train"]
    headers = []
    for file, _ in files[:: max(1, len(files) // HEADERS_READ)]:
        try:
            headers.append(read_header(contents.path(file)))
        except UnreadableError:
            continue
    if not headers:
        raise DataError(f"{root} has no image that can be read; {printable(files[0][0])}, for example, cannot be read")
    heights, widths = [header.height for header in headers], [header.width for header in headers]
    median_side = int(np.median(np.minimum(heights, widths)))
    smallest, sizes = f"{min(heights)}×{min(widths)}", f"{max(heights)}×{max(widths)}"
    if smallest != sizes:
        sizes = f"{int(np.median(heights))}×{int(np.median(widths))} ({smallest} to {sizes})"
    side = min(LARGEST_DEFAULT_SIDE, median_side)
    shape = (side, side, 1 if all(header.gray for header in headers) else 3)
    counts = contents.counts()
    names = ", ".join(f"{printable(name)} {count:,}" for name, count in zip(contents.classes, counts, strict=True))
    held_out = {part: len(contents.parts.get(part, ())) for part in ("validation", "test")}
    description = (
        f"{len(counts)} classes: {names}\n"
        f"{sum(counts):,} labeled, {len(files) - sum(counts):,} unlabeled, "
        f"{', '.join(f'{count:,} {part}' for part, count in held_out.items())} images, {sizes} pixels, "
        f"{'grayscale' if shape[2] == 1 else 'color'}{describe_others(contents.other_files)}"
    )
    evaluated = sum(held_out.values())
    return ImageFolder(str(root), root.name, description, shape, len(counts), evaluated, contents, median_side)


def suggested_settings(height: int, width: int, channels: int, count: int) -> dict[str, Any]:
    """Settings for `count` training images of one shape that have no tuned ones.

    The networks are small, for CPUs. Tiny images get the settings of scikit-learn's digits. Grayscale images may be
    letters or digits, which mirroring turns into others; so only color images are flipped.
    """
    side = min(height, width)
    tiny, medium = side <= TINY, side <= MEDIUM
    batch = 32 if tiny or 5000 <= count < 20_000 else 16 if count < 5000 else 64
    return {
        "flip": channels >= 3,
        "padding": round(side / 8),
        "cutout": side // 2,
        "network": "small" if tiny else "wrn-16-2" if medium else "wrn-13-1",
        "steps": min(100_000, max(1000, 100 * round(EPOCHS * count / (UNLABELED_PER_LABELED * batch) / 100))),
        "batch_size": batch,
        "learning_rate": 0.1 if tiny else 0.03,
    }


class _ColorFoundError(Exception):
    """The images whose headers were read are grayscale, but others are not."""


def _chunks(
    contents: FolderContents, shape: tuple[int, int, int], crop: bool, notes: dict[str, Any], progress: Progress
) -> Iterator[Chunk]:
    """All images, part by part; at the end, `notes` has the skipped files and the pairs of files of `SAME_IMAGES`."""
    total, done = sum(map(len, contents.parts.values())), 0
    seen: dict[str, list[tuple[int, str]]] = {"train": [], "validation": [], "test": []}  # checksums of the pixels
    skipped: list[list[str]] = []
    classes: dict[str, int] = {}  # the label of each training image
    for part, files in contents.parts.items():
        names = {contents.path(file): (file, label) for file, label in files}
        for decoded in decode_files(names, shape, crop=crop):
            if shape[2] == 1 and not decoded.gray:
                raise _ColorFoundError
            skipped += [[printable(names[file][0]), reason] for file, reason in decoded.bad]
            if 2 * len(skipped) > total:
                bad = first_few([f"{file} {reason}" for file, reason in skipped])
                raise DataError(f"more than half of the {total:,} files in {contents.root} cannot be used: {bad}")
            # 64 bits, and twice as fast as the fastest checksum of hashlib
            sums = [hash(image.tobytes()) for image in decoded.images]
            seen[part] += zip(sums, [names[file][0] for file in decoded.files], strict=True)
            done += len(decoded.files) + len(decoded.bad)
            progress(f"reading {contents.root.name}", done, total)
            yield Chunk(part, decoded.images, np.array([names[file][1] for file in decoded.files], dtype=np.int64))
        if part == "train":
            classes = dict(files)
            readable = {classes[file] for _, file in seen["train"]}
            for label, name in enumerate(contents.classes):
                if label not in readable:
                    raise DataError(f"{contents.root}: no image of the class '{printable(name)}' can be read; add some")
    validation = dict(seen["validation"])
    evaluated = validation | dict(seen["test"])
    labeled: dict[int, str] = {}
    pairs: dict[str, list[tuple[str, str]]] = {
        "repeated": [(file, evaluated[checksum]) for checksum, file in seen["train"] if checksum in evaluated],
        "contradictory": [],
        "shared": [(validation[checksum], file) for checksum, file in seen["test"] if checksum in validation],
    }
    for checksum, file in seen["train"]:
        if classes[file] != UNLABELED and classes[labeled.setdefault(checksum, file)] != classes[file]:
            pairs["contradictory"].append((labeled[checksum], file))
    notes["skipped"] = skipped
    notes |= {kind: [(printable(mine), printable(theirs)) for mine, theirs in found] for kind, found in pairs.items()}
