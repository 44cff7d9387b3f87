"""What a folder of images contains: classes, files and labels, before any file is opened."""

import csv
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rankingmatch.core.errors import DataError, setting
from rankingmatch.data.decode import image_suffixes
from rankingmatch.data.names import first_few, printable
from rankingmatch.data.split import UNLABELED

__all__ = ["FolderContents", "images_below", "labeled_files", "scan_folder"]

LABELED = ("labeled", "train")
HELD_OUT = {"val": "validation", "validation": "validation", "test": "test"}


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
        The number of files whose names are not those of images.
    """

    root: Path
    classes: tuple[str, ...]
    parts: dict[str, list[tuple[str, int]]]
    notes: tuple[str, ...] = ()
    other_files: int = 0

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
    scanner = _Scanner(root)
    parts: dict[str, list[tuple[str, str]]] = {}
    if labels_csv is not None:
        parts["train"] = scanner.labels_from_csv(labels_csv)
    else:
        parts["train"] = list(scanner.class_folders(_labeled_root(root), unlabeled))
    for name, part in HELD_OUT.items():
        if (root / name).is_dir():
            parts.setdefault(part, []).extend(scanner.class_folders(root / name))
    classes = tuple(sorted({name for _, name in parts["train"] if name}))
    _check_classes(root, classes, parts)
    index = {name: label for label, name in enumerate(classes)} | {"": UNLABELED}
    labeled = {part: [(file, index[name]) for file, name in files] for part, files in parts.items() if files}
    # Labeled images keep their labels, and held-out images never get into training.
    seen = {file for files in labeled.values() for file, _ in files}
    for folder in (root / "unlabeled" if labels_csv is None else None, unlabeled):
        if folder is not None and (folder.is_dir() or folder == unlabeled):
            new = [file for file in scanner.images(folder) if file not in seen]
            labeled["train"] += [(file, UNLABELED) for file in new]
            seen.update(new)
    return FolderContents(root, classes, labeled, tuple(scanner.notes), scanner.other_files)


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
    scanner = _Scanner(root)
    folder = root / "test" if (root / "test").is_dir() else _labeled_root(root)
    pairs = [(os.path.join(root, file), name) for file, name in scanner.class_folders(folder)]  # noqa: PTH118
    if not pairs:
        raise DataError(f"{root} has neither test/ nor class folders with images")
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
    return _Scanner(Path()).images(folder)


def _labeled_root(root: Path) -> Path:
    present = [root / name for name in LABELED if (root / name).is_dir()]
    if len(present) > 1:
        raise DataError(f"{root} has both labeled/ and train/; rename the one that does not have the labeled images")
    return present[0] if present else root


def _check_classes(root: Path, classes: tuple[str, ...], parts: dict[str, list[tuple[str, str]]]) -> None:
    if not classes:
        raise DataError(
            f"{root} has no class folders with images; make a folder of images for each class, in it or in its folder "
            f"labeled/, or use {setting('labels_csv')}"
        )
    if len(classes) == 1:
        raise DataError(f"{root} has only one class, '{classes[0]}'; add images that are not of the class")
    for part in ("validation", "test"):
        unseen = sorted({name for _, name in parts.get(part, ()) if name not in classes})
        if unseen:
            raise DataError(
                f"{root}: the class '{printable(unseen[0])}' of the {part} images has no training images; label some, "
                "or delete its folder there"
            )


class _Scanner:
    """Walks through a folder and notes what the user should know."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notes: list[str] = []
        self.other_files = 0

    def class_folders(self, folder: Path, unlabeled: Path | None = None) -> Iterator[tuple[str, str]]:
        """Every image of every class folder, with the folder's name; `unlabeled` is not a class."""
        reserved = {*HELD_OUT, "unlabeled"} if folder == self.root else set()
        loose = []
        for entry in self._entries(folder):
            if entry.name in reserved or entry.name.startswith(".") or (unlabeled and Path(entry.path) == unlabeled):
                continue
            if not entry.is_dir():
                loose += [entry.name] if _is_image_name(entry.name) else []
                continue
            empty = True
            for file in self.images(Path(entry.path)):
                empty = False
                yield file, entry.name
            if empty:
                self.notes.append(f"skipped the class '{printable(entry.name)}': it has no images in {folder}")
        if loose:
            self.notes.append(
                f"skipped {len(loose):,} images in {folder} that are not in a class folder: {first_few(sorted(loose))}"
            )

    def labels_from_csv(self, table: Path) -> list[tuple[str, str]]:
        """All images of the folder, with the labels in a CSV file."""
        reserved = [f"{name}{os.sep}" for name in HELD_OUT]
        labels = {file: "" for file in self.images(self.root) if not any(map(file.startswith, reserved))}
        missing = []
        for line, file, label in _csv_rows(table):
            name = os.path.relpath(os.path.join(self.root, file), self.root) if file else file  # noqa: PTH118
            if name not in labels:
                missing.append(file)
            elif labels[name] not in ("", label):
                both = f"'{labels[name]}' and '{label}'"
                raise DataError(f"{table}, line {line}: '{printable(file)}' has two labels, {both}")
            else:
                labels[name] = label
        if missing and len(missing) > len(labels):
            raise DataError(f"{table} has {len(missing):,} files that are not in {self.root}: {first_few(missing)}")
        if missing:
            self.notes.append(f"{table} has labels for {len(missing):,} files that do not exist: {first_few(missing)}")
        return list(labels.items())

    def images(self, folder: Path) -> Iterator[str]:
        """The images below a folder, relative to the root if they are in it."""
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}")
        prefix = os.path.join(self.root, "")  # noqa: PTH118
        for path in self._walk(os.fspath(folder), ()):
            yield path.removeprefix(prefix)

    def _walk(self, folder: str, parents: tuple[tuple[int, int], ...]) -> Iterator[str]:
        identity = _identity(folder)
        if identity in parents:
            self.notes.append(f"skipped {printable(folder)}: it is a link to one of its parent folders")
            return
        for entry in self._entries(folder):
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from self._walk(entry.path, (*parents, identity))
            elif not _is_image_name(entry.name):
                self.other_files += 1
            elif entry.is_file() or _is_broken_link(entry):
                yield entry.path

    def _entries(self, folder: "str | Path") -> "list[os.DirEntry[str]]":
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.notes.append(f"skipped {printable(str(folder))}: it cannot be read ({error.strerror})")
            return []


def _csv_rows(table: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, file and label of each row of a CSV file."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if not {"file", "label"} <= set(rows.fieldnames or ()):
                raise DataError(f"{table} must have the columns file and label in its first line")
            for row in rows:
                yield rows.line_num, row["file"] or "", (row["label"] or "").strip()
    except OSError as error:
        raise DataError(f"{setting('labels_csv')} is {table}, which cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{setting('labels_csv')} is {table}, which is not a CSV file in UTF-8 ({error})") from error


def _identity(folder: str) -> tuple[int, int]:
    status = os.stat(folder)  # noqa: PTH116
    return status.st_dev, status.st_ino


def _is_broken_link(entry: "os.DirEntry[str]") -> bool:
    """A broken link is listed among the files that cannot be read."""
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True


def _is_image_name(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in image_suffixes()  # noqa: PTH122
