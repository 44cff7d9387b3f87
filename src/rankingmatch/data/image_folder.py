"""A folder of images, or shards: read into a cache once, with settings that follow from what it holds."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.core.errors import DataError
from rankingmatch.core.names import first_few, printable
from rankingmatch.data.cache import FORMAT, cache_directory, read_or_write, write_cache
from rankingmatch.data.dataset import UNLABELED, Dataset
from rankingmatch.data.decode import Header, UnreadableError, decode_files, read_header
from rankingmatch.data.folder_contents import FolderContents, scan_folder
from rankingmatch.data.folder_scanner import describe_others
from rankingmatch.data.image_files import ImageFile
from rankingmatch.data.presets import suggested_settings
from rankingmatch.data.progress import Progress, no_progress, under_way
from rankingmatch.data.readers import Chunk, DatasetStream

__all__ = ["ImageFolder", "read_folder"]

log = logging.getLogger(__name__)

LARGEST_DEFAULT_SIDE = 32  # pixels: with few labels and on a CPU, larger images took longer and gave no lower error
HEADERS_READ = 400  # of as many files (up to twice as many) the headers decide the image size
SAME_IMAGES = {
    "contradictory": "%d images are in two classes: %s",
    "shared": "%d test images are also validation images, so that they are no independent test: %s",
}
ENOUGH_LABELS = 10  # labels per class from which on some are held out for validation


@dataclass(frozen=True)
class ImageFolder:
    """A folder of images, or shards, scanned; a `Source`.

    Attributes
    ----------
    contents
        The files and their labels.
    headers
        The headers of some training images, spread over all of them.
    """

    contents: FolderContents
    headers: tuple[Header, ...]

    @property
    def name(self) -> str:
        """The absolute path of the folder or shard."""
        return str(self.contents.root)

    @property
    def title(self) -> str:
        """The name of the folder or shard."""
        return self.contents.root.name

    @property
    def is_folder(self) -> bool:
        """True."""
        return True

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels: the median of the shorter sides, at most `LARGEST_DEFAULT_SIDE`."""
        side = min(LARGEST_DEFAULT_SIDE, self.side)
        return side, side, 1 if all(header.gray for header in self.headers) else 3

    @property
    def side(self) -> int:
        """The median of the images' shorter sides in pixels."""
        return int(np.median([min(header.height, header.width) for header in self.headers]))

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.contents.classes)

    @property
    def training(self) -> int | None:
        """The number of training images."""
        return len(self.contents.parts["train"])

    @property
    def evaluated(self) -> int:
        """The number of validation and test images."""
        return sum(len(self.contents.parts.get(part, ())) for part in ("validation", "test"))

    @property
    def description(self) -> str:
        """Classes and their labels in one line, images and their sizes in another."""
        contents, counts = self.contents, self.contents.counts()
        names = ", ".join(f"{printable(name)} {count:,}" for name, count in zip(contents.classes, counts, strict=True))
        held_out = [f"{len(contents.parts.get(part, ())):,} {part}" for part in ("validation", "test")]
        return (
            f"{len(counts)} classes: {names}\n"
            f"{sum(counts):,} labeled, {len(contents.parts['train']) - sum(counts):,} unlabeled, "
            f"{', '.join(held_out)} images, {_sizes(self.headers)} pixels, "
            f"{'grayscale' if self.shape[2] == 1 else 'color'}{describe_others(contents.other_files)}"
        )

    def preset(self, image_size: int | None = None) -> dict[str, Any]:
        """Return settings for images of this kind and number, ``image_size`` among them.

        Parameters
        ----------
        image_size
            The side to which images are resized; by default, `shape` has it.

        Returns
        -------
        dict
            Values of options by name.
        """
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

        Files that cannot be read are skipped; a warning is logged for them and for whatever else looks wrong.

        Parameters
        ----------
        data_dir
            Ignored.
        image_size
            The side to which images are resized; by default, `shape` has it.
        progress
            Called as files are read.
        crop
            Whether images keep their proportions and are cropped, instead of squeezed to a square.

        Returns
        -------
        Dataset
            Memory-mapped images and their labels.

        Raises
        ------
        DataError
            If most of the files, or all of a class, cannot be read.
        """
        contents, (side, _, channels) = self.contents, self.shape
        side = image_size or side
        size = f"{side}-crop" if crop else str(side)
        with under_way(progress, f"looking for changes in {contents.root.name}"):
            fingerprint, exactly = contents.fingerprint(), contents.fingerprint(exactly=True)
        directory = cache_directory() / f"folder-{exactly}-{size}-{FORMAT}"

        def decode() -> None:
            try:
                write_cache(directory, _stream(contents, (side, side, channels), crop, progress))
            except _ColorFoundError:
                write_cache(directory, _stream(contents, (side, side, 3), crop, progress))

        dataset, metadata = read_or_write(directory, decode)
        return replace(dataset, fingerprint=fingerprint, skipped=_warn(contents, metadata))


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
    return ImageFolder(contents, tuple(headers))


def _sizes(headers: tuple[Header, ...]) -> str:
    """The median height and width, with the extremes if images differ."""
    heights, widths = [header.height for header in headers], [header.width for header in headers]
    smallest, largest = f"{min(heights)}×{min(widths)}", f"{max(heights)}×{max(widths)}"
    if smallest == largest:
        return smallest
    return f"{int(np.median(heights))}×{int(np.median(widths))} ({smallest} to {largest})"


def _warn(contents: FolderContents, metadata: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Log what is wrong with a folder; the result has the skipped files and the reasons."""
    for note in contents.notes:
        log.warning("%s", note)
    if metadata["repeated"]:
        pairs = [f"{mine} = {theirs}" for mine, theirs in metadata["repeated"]]
        log.warning("%d training images are also among the evaluation images: %s", len(pairs), first_few(pairs))
    for key, problem in SAME_IMAGES.items():
        if pairs := [f"{mine} = {theirs}" for mine, theirs in metadata.get(key, ())]:  # a cache may be older
            log.warning(problem, len(pairs), first_few(pairs))
    skipped = tuple((file, reason) for file, reason in metadata["skipped"])
    if skipped:
        log.warning("skipped %d files: %s", len(skipped), first_few([f"{file} {reason}" for file, reason in skipped]))
    return skipped


# --- pixels --------------------------------------------------------------------------------------------------


class _ColorFoundError(Exception):
    """The images whose headers were read are grayscale, but others are not."""


def _stream(contents: FolderContents, shape: tuple[int, int, int], crop: bool, progress: Progress) -> DatasetStream:
    notes: dict[str, Any] = {"skipped": [], "repeated": [], "contradictory": [], "shared": []}
    chunks = _chunks(contents, shape, crop, notes, progress)
    return DatasetStream(contents.classes, chunks, notes=notes)


def _chunks(
    contents: FolderContents, shape: tuple[int, int, int], crop: bool, notes: dict[str, Any], progress: Progress
) -> Iterator[Chunk]:
    """All images, part by part; at the end, `notes` has the skipped files and those that are in two parts."""
    total, done = sum(map(len, contents.parts.values())), 0
    seen: dict[str, list[tuple[int, ImageFile]]] = {}  # checksums of the pixels
    for part, files in contents.parts.items():
        label_of = {contents.path(file): label for file, label in files}
        found = seen.setdefault(part, [])
        for decoded in decode_files(label_of, shape, crop=crop):
            if shape[2] == 1 and not decoded.gray:
                raise _ColorFoundError
            notes["skipped"] += [[_shown(contents, file), reason] for file, reason in decoded.bad]
            _check_skipped(contents, notes["skipped"], total)
            found += zip(map(_checksum, decoded.images), decoded.files, strict=True)
            done += len(decoded.files) + len(decoded.bad)
            progress(f"reading {contents.root.name}", done, total)
            yield Chunk(part, decoded.images, np.array([label_of[file] for file in decoded.files], dtype=np.int64))
        if part == "train":
            _check_labels(contents, {label_of[file] for _, file in found})
    labels = dict(contents.parts["train"])
    by_pixels: dict[int, str] = {}
    for checksum, path in seen["train"]:
        file = _relative(contents, path)
        if labels[file] == UNLABELED:
            continue
        other = by_pixels.setdefault(checksum, file)
        if labels[other] != labels[file]:
            notes["contradictory"].append([printable(other), printable(file)])
    validation = dict(seen.get("validation", ()))
    notes["shared"] = [
        [_shown(contents, validation[checksum]), _shown(contents, file)]
        for checksum, file in seen.get("test", ())
        if checksum in validation
    ]
    evaluated = {checksum: file for part in ("validation", "test") for checksum, file in seen.get(part, ())}
    notes["repeated"] = [
        [_shown(contents, file), _shown(contents, evaluated[checksum])]
        for checksum, file in seen["train"]
        if checksum in evaluated
    ]


def _check_skipped(contents: FolderContents, skipped: list[list[str]], total: int) -> None:
    if 2 * len(skipped) > total:
        names = first_few([f"{file} {reason}" for file, reason in skipped])
        raise DataError(f"more than half of the {total:,} files in {contents.root} cannot be used: {names}")


def _check_labels(contents: FolderContents, readable: set[int]) -> None:
    for label, name in enumerate(contents.classes):
        if label not in readable:
            raise DataError(f"{contents.root}: no image of the class '{printable(name)}' can be read; add some")


def _checksum(image: np.ndarray) -> int:
    return hash(image.tobytes())  # 64 bits, and twice as fast as the fastest checksum of hashlib


def _relative(contents: FolderContents, path: ImageFile) -> str:
    """A file as the contents list it."""
    return str(path).removeprefix(f"{contents.root}/")


def _shown(contents: FolderContents, path: ImageFile) -> str:
    return printable(_relative(contents, path))
