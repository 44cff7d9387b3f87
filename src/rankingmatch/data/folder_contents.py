"""What a folder of images, or of shards, contains: classes, files and labels, before any image is opened."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rankingmatch.core.errors import DataError, setting
from rankingmatch.core.names import first_few, printable
from rankingmatch.data.dataset import UNLABELED
from rankingmatch.data.folder_scanner import HELD_OUT, FolderScanner, describe_others
from rankingmatch.data.image_files import ImageFile, StoredImage
from rankingmatch.data.shards import is_sharded, scan_shards, stored_images

__all__ = ["FolderContents", "images_below", "labeled_files", "scan_folder"]

LABELED = ("labeled", "train")
Parts = dict[str, list[tuple[str, str]]]  # files and the names of their classes


@dataclass(frozen=True)
class FolderContents:
    """The image files of a folder, or the images of shards, and their labels.

    Attributes
    ----------
    root
        The folder, or a single shard.
    classes
        The sorted class names.
    parts
        Files and labels of "train", "validation" and "test". Files are relative to the root, or absolute if they are
        elsewhere.
    notes
        What the user should know, a line each.
    other_files
        How many files have names that are not those of images, by their endings.
    stored
        The images in shards; the file of one is ``SHARD/NAME``.
    """

    root: Path
    classes: tuple[str, ...]
    parts: dict[str, list[tuple[str, int]]]
    notes: tuple[str, ...] = ()
    other_files: Mapping[str, int] = field(default_factory=dict)
    stored: Mapping[str, StoredImage] = field(default_factory=dict)

    def path(self, file: str) -> ImageFile:
        """The path of a file, or the image in a shard."""
        return self.stored.get(file) or os.path.join(self.root, file)  # noqa: PTH118

    def counts(self, part: str = "train") -> list[int]:
        """The number of images that each class has in a part."""
        counts = [0] * len(self.classes)
        for _, label in self.parts.get(part, ()):
            if label != UNLABELED:
                counts[label] += 1
        return counts

    def fingerprint(self, *, exactly: bool = False) -> str:
        """A checksum of the names, labels, sizes and modification times of all files.

        A copy of the folder has the same fingerprint. An archive may give all files one time, so that different images
        of equal size have the same one, too; with `exactly`, the times at which files were created here count as well.
        """
        digest = hashlib.sha256(repr(self.classes).encode("utf-8", "surrogateescape"))
        for part, files in self.parts.items():
            for file, label in files:
                stamp = _stamp(self.path(file), exactly)
                digest.update(b"%b\0%b\0%d %b\n" % (part.encode(), os.fsencode(file), label, stamp.encode()))
        return digest.hexdigest()[:16]


def _stamp(file: ImageFile, exactly: bool) -> str:
    """The size and the times of a file."""
    if not isinstance(file, str):
        return file.stamp(exactly=exactly)
    try:
        status = os.stat(file)  # noqa: PTH116
    except OSError:
        return "unreadable"
    return f"{status.st_size} {status.st_mtime_ns}" + (f" {status.st_ctime_ns}" if exactly else "")


def scan_folder(root: Path, unlabeled: Path | None = None, labels_csv: Path | None = None) -> FolderContents:
    """List the images of a folder in any of the layouts, or of shards.

    Training images are in class folders, which are in labeled/ or train/ or in the folder itself; or anywhere in the
    folder, with a CSV file of labels. val/ (or validation/) and test/ have class folders, too; unlabeled/ has images.
    Shards have their labels in them, and such words in their names.
    """
    scanner, stored = FolderScanner(root), dict[str, StoredImage]()
    if is_sharded(root):
        parts = _sharded_parts(scanner, labels_csv, stored)
    else:
        parts = _folder_parts(scanner, unlabeled, labels_csv)
    more = [file for file, _ in parts.pop("unlabeled", ())]
    classes = tuple(sorted({name for _, name in parts["train"] if name}))
    _check_classes(root, classes, parts, describe_others(scanner.others), sharded=bool(stored))
    index = {name: label for label, name in enumerate(classes)} | {"": UNLABELED}
    labeled = {part: [(file, index[name]) for file, name in files] for part, files in parts.items() if files}
    # Labeled images keep their labels, and held-out images never get into training.
    seen = {file for files in labeled.values() for file, _ in files}
    for files in (more, [] if unlabeled is None else _unlabeled_elsewhere(scanner, unlabeled, stored)):
        new = [file for file in files if file not in seen]
        labeled["train"] += [(file, UNLABELED) for file in new]
        seen.update(new)
    return FolderContents(root, classes, labeled, tuple(scanner.notes), scanner.others, stored)


def _folder_parts(scanner: FolderScanner, unlabeled: Path | None, labels_csv: Path | None) -> Parts:
    """The files and labels of a folder, for each part; "unlabeled" is the folder of this name."""
    root = scanner.root
    if labels_csv is not None:
        parts = scanner.labels_from_csv(labels_csv)
    else:
        parts = {"train": list(scanner.class_folders(_labeled_root(root), unlabeled))}
    for name, part in HELD_OUT.items():
        if (root / name).is_dir():
            parts.setdefault(part, []).extend(scanner.class_folders(root / name))
    if labels_csv is None and (root / "unlabeled").is_dir():
        parts["unlabeled"] = [(file, "") for file in scanner.images(root / "unlabeled")]
    return parts


def _sharded_parts(scanner: FolderScanner, labels_csv: Path | None, stored: dict[str, StoredImage]) -> Parts:
    """The files and labels of shards, for each part; `stored` gets the images by the names of the files."""
    parts: Parts = {"train": []}
    for part, image, label in scan_shards(scanner.root, own_labels=labels_csv is None):
        file = str(image).removeprefix(f"{scanner.root}/")
        stored[file] = image
        parts.setdefault(part, []).append((file, label))
    for part in ("validation", "test"):
        if bare := [file for file, label in parts.get(part, ()) if not label]:
            scanner.notes.append(f"skipped {len(bare):,} {part} images without labels: {first_few(bare)}")
            parts[part] = [(file, label) for file, label in parts[part] if label]
    if labels_csv is not None:
        training = [file for part in ("train", "unlabeled") for file, _ in parts.pop(part, ())]
        for part, files in scanner.labeled_by(labels_csv, training).items():
            parts[part] = [*parts.get(part, ()), *files]
    return parts


def _unlabeled_elsewhere(scanner: FolderScanner, place: Path, stored: dict[str, StoredImage]) -> list[str]:
    """The images of another folder, or of shards, which get into `stored`."""
    if not is_sharded(place):
        return list(scanner.images(place))
    images = {str(image): image for image in stored_images(place)}
    stored.update(images)
    return list(images)


def labeled_files(root: Path, classes: tuple[str, ...]) -> tuple[list[ImageFile], list[int]]:
    """List the images in a folder's test/, or else in its class folders, for an evaluation; or those of shards.

    Parameters
    ----------
    root
        The folder, or a shard.
    classes
        The class names of a model.

    Returns
    -------
    tuple of list of ImageFile and list of int
        The files, and the index of each one's class in `classes`.

    Raises
    ------
    DataError
        If there are no images, or one has a class that is not among `classes`.
    """
    pairs = _labeled_in_shards(root) if is_sharded(root) else _labeled_in_folder(root)
    unknown = sorted({name for _, name in pairs} - set(classes))
    if unknown:
        raise DataError(
            f"{root}: the model was not trained on the class '{printable(unknown[0])}', only on {', '.join(classes)}"
        )
    return [file for file, _ in pairs], [classes.index(name) for _, name in pairs]


def _labeled_in_folder(root: Path) -> list[tuple[ImageFile, str]]:
    scanner = FolderScanner(root)
    folder = root / "test" if (root / "test").is_dir() else _labeled_root(root)
    pairs: list[tuple[ImageFile, str]] = []
    pairs += [(os.path.join(root, file), name) for file, name in scanner.class_folders(folder)]  # noqa: PTH118
    if not pairs:
        others = describe_others(scanner.others)
        raise DataError(f"{root} has neither test/ nor class folders with images{others}")
    return pairs


def _labeled_in_shards(root: Path) -> list[tuple[ImageFile, str]]:
    found = [(part, image, label) for part, image, label in scan_shards(root) if label]
    if not found:
        raise DataError(f"the shards of {root} have no images with labels")
    chosen = "test" if any(part == "test" for part, _, _ in found) else "train"
    return [(image, label) for part, image, label in found if part == chosen]


def images_below(place: Path) -> Iterator[ImageFile]:
    """List the images of shards, or the image files below a folder, by their names.

    Links are followed, but never in a circle.

    Parameters
    ----------
    place
        A shard, or any folder.

    Yields
    ------
    ImageFile
        The images of shards in their order, or paths, sorted within each folder.
    """
    return stored_images(place) if is_sharded(place) else FolderScanner(Path(), dataset=place).images(place)


def _labeled_root(root: Path) -> Path:
    present = [root / name for name in LABELED if (root / name).is_dir()]
    if len(present) > 1:
        raise DataError(f"{root} has both labeled/ and train/; rename the one that does not have the labeled images")
    return present[0] if present else root


def _check_classes(root: Path, classes: tuple[str, ...], parts: Parts, others: str, *, sharded: bool) -> None:
    if not classes and sharded:
        raise DataError(
            f"the training images in the shards of {root} have no labels; add KEY.cls or KEY.json with a label for "
            f"KEY.jpg, or use {setting('labels_csv')}"
        )
    if not classes:
        raise DataError(
            f"{root} has no class folders with images{others}; make a folder of images for each class, in it or in "
            f"its folder labeled/, or use {setting('labels_csv')}"
        )
    if len(classes) == 1:
        raise DataError(
            f"{root} has only one class, '{printable(classes[0])}'{others}; add images that are not of the class"
        )
    for part in ("validation", "test"):
        unseen = sorted({name for _, name in parts.get(part, ()) if name not in classes})
        if unseen:
            raise DataError(
                f"{root}: the class '{printable(unseen[0])}' of the {part} images has no training images; label some, "
                "or delete those images"
            )
