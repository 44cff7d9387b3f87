"""What a folder of images contains: classes, files and labels, before any file is opened."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rankingmatch.core.errors import DataError, setting
from rankingmatch.data.dataset import UNLABELED
from rankingmatch.data.folder_scanner import HELD_OUT, FolderScanner, describe_others
from rankingmatch.data.names import printable

__all__ = ["FolderContents", "images_below", "labeled_files", "scan_folder"]

LABELED = ("labeled", "train")


@dataclass(frozen=True)
class FolderContents:
    """The image files of a folder and their labels.

    Attributes
    ----------
    root
        The folder.
    classes
        The sorted class names.
    parts
        Files and labels of "train", "validation" and "test". Files are relative to the root, or absolute if they are
        elsewhere.
    notes
        What the user should know, a line each.
    other_files
        How many files have names that are not those of images, by their endings.
    """

    root: Path
    classes: tuple[str, ...]
    parts: dict[str, list[tuple[str, int]]]
    notes: tuple[str, ...] = ()
    other_files: Mapping[str, int] = field(default_factory=dict)

    def path(self, file: str) -> str:
        """The path of a file."""
        return os.path.join(self.root, file)  # noqa: PTH118

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
                try:
                    status = os.stat(self.path(file))  # noqa: PTH116
                    stamp = f"{status.st_size} {status.st_mtime_ns}" + (f" {status.st_ctime_ns}" if exactly else "")
                except OSError:
                    stamp = "unreadable"
                digest.update(b"%b\0%b\0%d %b\n" % (part.encode(), os.fsencode(file), label, stamp.encode()))
        return digest.hexdigest()[:16]


def scan_folder(root: Path, unlabeled: Path | None = None, labels_csv: Path | None = None) -> FolderContents:
    """List the images of a folder in any of the layouts.

    Training images are in class folders, which are in labeled/ or train/ or in the folder itself; or anywhere in the
    folder, with a CSV file of labels. val/ (or validation/) and test/ have class folders, too; unlabeled/ has images.
    """
    scanner = FolderScanner(root)
    parts: dict[str, list[tuple[str, str]]]
    if labels_csv is not None:
        parts = scanner.labels_from_csv(labels_csv)
    else:
        parts = {"train": list(scanner.class_folders(_labeled_root(root), unlabeled))}
    for name, part in HELD_OUT.items():
        if (root / name).is_dir():
            parts.setdefault(part, []).extend(scanner.class_folders(root / name))
    classes = tuple(sorted({name for _, name in parts["train"] if name}))
    _check_classes(root, classes, parts, describe_others(scanner.others))
    index = {name: label for label, name in enumerate(classes)} | {"": UNLABELED}
    labeled = {part: [(file, index[name]) for file, name in files] for part, files in parts.items() if files}
    # Labeled images keep their labels, and held-out images never get into training.
    seen = {file for files in labeled.values() for file, _ in files}
    for folder in (root / "unlabeled" if labels_csv is None else None, unlabeled):
        if folder is not None and (folder.is_dir() or folder == unlabeled):
            new = [file for file in scanner.images(folder) if file not in seen]
            labeled["train"] += [(file, UNLABELED) for file in new]
            seen.update(new)
    return FolderContents(root, classes, labeled, tuple(scanner.notes), scanner.others)


def labeled_files(root: Path, classes: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """List the images in a folder's test/, or else in its class folders, for an evaluation.

    Parameters
    ----------
    root
        The folder.
    classes
        The class names of a model.

    Returns
    -------
    tuple of list of str and list of int
        The files, and the index of each one's class in `classes`.

    Raises
    ------
    DataError
        If there are no images, or a class folder is not among `classes`.
    """
    scanner = FolderScanner(root)
    folder = root / "test" if (root / "test").is_dir() else _labeled_root(root)
    pairs = [(os.path.join(root, file), name) for file, name in scanner.class_folders(folder)]  # noqa: PTH118
    if not pairs:
        others = describe_others(scanner.others)
        raise DataError(f"{root} has neither test/ nor class folders with images{others}")
    unknown = sorted({name for _, name in pairs} - set(classes))
    if unknown:
        raise DataError(
            f"{folder}: the model was not trained on the class '{printable(unknown[0])}', only on {', '.join(classes)}"
        )
    return [file for file, _ in pairs], [classes.index(name) for _, name in pairs]


def images_below(folder: Path) -> Iterator[str]:
    """List the image files below a folder, by their names; links are followed, but never in a circle.

    Parameters
    ----------
    folder
        Any folder.

    Yields
    ------
    str
        Paths, sorted within each folder.
    """
    return FolderScanner(Path(), dataset=folder).images(folder)


def _labeled_root(root: Path) -> Path:
    present = [root / name for name in LABELED if (root / name).is_dir()]
    if len(present) > 1:
        raise DataError(f"{root} has both labeled/ and train/; rename the one that does not have the labeled images")
    return present[0] if present else root


def _check_classes(root: Path, classes: tuple[str, ...], parts: dict[str, list[tuple[str, str]]], others: str) -> None:
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
                "or delete its folder there"
            )
