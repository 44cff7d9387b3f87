"""What a folder of images holds: classes, files and labels, before any file is opened."""

import csv
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rankingmatch.core.errors import DataError
from rankingmatch.data.decode import image_suffixes
from rankingmatch.data.split import UNLABELED

LABELED = ("labeled", "train")
HELD_OUT = {"val": "validation", "validation": "validation", "test": "test"}
SHOWN = 5  # names in a message


@dataclass
class Folder:
    """Files (relative to the folder, or whole paths if they are elsewhere) and labels of each part."""

    root: Path
    classes: tuple[str, ...] = ()
    parts: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # train, validation, test
    notes: list[str] = field(default_factory=list)  # what the user should know, a line each
    others: int = 0  # files that are no images by their names

    def path(self, file: str) -> str:
        """Where a file is."""
        return os.path.join(self.root, file)  # noqa: PTH118

    def counts(self, part: str = "train") -> list[int]:
        """How many images of a part each class has."""
        counts = [0] * len(self.classes)
        for _, label in self.parts.get(part, ()):
            if label != UNLABELED:
                counts[label] += 1
        return counts

    def fingerprint(self, *, exactly: bool = False) -> str:
        """A checksum of the names, labels, sizes and times of all files: the same as long as nothing changed.

        A copy has the same one. Archives may give all files one time, so that other images of one size have it, too;
        `exactly`, with the times at which the files were put there, it is of these files alone.
        """
        digest = hashlib.sha256(repr(self.classes).encode("utf-8", "surrogateescape"))
        for part, files in self.parts.items():
            for file, label in files:
                try:
                    about = os.stat(self.path(file))  # noqa: PTH116
                    stamp = f"{about.st_size} {about.st_mtime_ns}" + (f" {about.st_ctime_ns}" if exactly else "")
                except OSError:
                    stamp = "unreadable"
                digest.update(b"%b\0%b\0%d %b\n" % (part.encode(), os.fsencode(file), label, stamp.encode()))
        return digest.hexdigest()[:16]


def scan(root: Path, unlabeled: Path | None = None, labels_csv: Path | None = None) -> Folder:
    """What a folder holds, in any of the layouts.

    Its training images are in class folders, which are in labeled/ or train/ or in the folder itself; or anywhere in
    it, with a table of labels. val/ (or validation/) and test/ have class folders, too, and unlabeled/ has images.
    """
    folder = Folder(root)
    parts: dict[str, list[tuple[str, str]]] = {}
    if labels_csv is not None:
        parts["train"] = _labels_from_table(folder, labels_csv)
    else:
        parts["train"] = list(_class_folders(folder, _labeled_root(root), unlabeled))
    for name, part in HELD_OUT.items():
        if (root / name).is_dir():
            parts.setdefault(part, []).extend(_class_folders(folder, root / name))
    folder.classes = tuple(sorted({name for _, name in parts["train"] if name}))
    _check_classes(folder, parts)
    number = {name: label for label, name in enumerate(folder.classes)} | {"": UNLABELED}
    folder.parts = {part: [(file, number[name]) for file, name in files] for part, files in parts.items() if files}
    # What is labeled stays so, and what is held out never gets into training.
    seen = {file for files in folder.parts.values() for file, _ in files}
    for place in (root / "unlabeled" if labels_csv is None else None, unlabeled):
        if place is not None and (place.is_dir() or place == unlabeled):
            new = [file for file in _images(folder, place) if file not in seen]
            folder.parts["train"] += [(file, UNLABELED) for file in new]
            seen.update(new)
    return folder


def labeled_files(root: Path, classes: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """The images in a folder's test/, or else in its class folders, and the places of their classes among these."""
    folder = Folder(root)
    place = root / "test" if (root / "test").is_dir() else _labeled_root(root)
    pairs = [(folder.path(file), name) for file, name in _class_folders(folder, place)]
    if not pairs:
        raise DataError(f"{root} has neither test/ nor class folders with images")
    unknown = sorted({name for _, name in pairs} - set(classes))
    if unknown:
        raise DataError(
            f"{place}: '{printable(unknown[0])}' is none of the classes that were trained ({', '.join(classes)})"
        )
    return [file for file, _ in pairs], [classes.index(name) for _, name in pairs]


def images_below(place: Path) -> Iterator[str]:
    """The files below a folder whose names are those of images, in order; links are followed, but never in a circle."""
    return _images(Folder(Path()), place)


def some(names: list[str]) -> str:
    """The first few names of a list, on one line whatever they contain."""
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(printable(name) for name in names[:SHOWN]) + more


def printable(name: str) -> str:
    """A name as it can be printed: line breaks and bytes that are no text are escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in name)


def _labeled_root(root: Path) -> Path:
    there = [root / name for name in LABELED if (root / name).is_dir()]
    if len(there) > 1:
        raise DataError(f"{root} has both labeled/ and train/; which has the labeled images? rename the other one")
    return there[0] if there else root


def _class_folders(folder: Folder, place: Path, unlabeled: Path | None = None) -> Iterator[tuple[str, str]]:
    """Every image of every class folder, with the folder's name; the one that is said to be unlabeled is none."""
    reserved = {*HELD_OUT, "unlabeled"} if place == folder.root else set()
    loose = []
    for entry in _entries(folder, place):
        if entry.name in reserved or entry.name.startswith(".") or (unlabeled and Path(entry.path) == unlabeled):
            continue
        if not entry.is_dir():
            loose += [entry.name] if _is_image_name(entry.name) else []
            continue
        empty = True
        for file in _images(folder, Path(entry.path)):
            empty = False
            yield file, entry.name
        if empty:
            folder.notes.append(f"class '{printable(entry.name)}' has no images in {place}: it is left out")
    if loose:
        folder.notes.append(
            f"{len(loose):,} images in {place} are in no class folder and are left out: {some(sorted(loose))}"
        )


def _check_classes(folder: Folder, parts: dict[str, list[tuple[str, str]]]) -> None:
    classes = folder.classes
    if not classes:
        raise DataError(
            f"{folder.root} has no class folders with images; make a folder of images for each class, in it or in "
            "its folder labeled/, or give --labels-csv"
        )
    if len(classes) == 1:
        raise DataError(f"{folder.root} has one class only, '{classes[0]}'; add images of what is not '{classes[0]}'")
    for part in ("validation", "test"):
        unseen = sorted({name for _, name in parts.get(part, ()) if name not in classes})
        if unseen:
            raise DataError(
                f"{folder.root}: no training image has the class '{printable(unseen[0])}' of the {part} images; "
                "label some, or remove its folder there"
            )


def _labels_from_table(folder: Folder, table: Path) -> list[tuple[str, str]]:
    """All images of the folder, with the labels of a CSV file."""
    reserved = [f"{name}{os.sep}" for name in HELD_OUT]
    labels = {file: "" for file in _images(folder, folder.root) if not any(map(file.startswith, reserved))}
    missing = []
    for line, file, label in _table(table):
        name = os.path.relpath(folder.path(file), folder.root) if file else file
        if name not in labels:
            missing.append(file)
        elif labels[name] not in ("", label):
            raise DataError(f"{table}, line {line}: '{printable(file)}' has two labels, '{labels[name]}' and '{label}'")
        else:
            labels[name] = label
    if missing and len(missing) > len(labels):
        raise DataError(f"{table} names {len(missing):,} files that are not in {folder.root}: {some(missing)}")
    if missing:
        folder.notes.append(f"{table} has labels for {len(missing):,} files that are not there: {some(missing)}")
    return list(labels.items())


def _table(table: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, file and label of each row of a CSV file."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if not {"file", "label"} <= set(rows.fieldnames or ()):
                raise DataError(f"{table} must have the columns file and label in its first line")
            for row in rows:
                yield rows.line_num, row["file"] or "", (row["label"] or "").strip()
    except OSError as error:
        raise DataError(f"--labels-csv {table} cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"--labels-csv {table} is no CSV file in UTF-8 ({error})") from error


def _images(folder: Folder, place: Path) -> Iterator[str]:
    """The images below a place, named relative to the folder if they are in it."""
    if not place.is_dir():
        raise DataError(f"there is no folder {place}")
    prefix = os.path.join(folder.root, "")  # noqa: PTH118
    for path in _walk(folder, os.fspath(place), ()):
        yield path.removeprefix(prefix)


def _walk(folder: Folder, place: str, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    here = _identity(place)
    if here in above:
        folder.notes.append(f"{printable(place)} leads back to a folder above it and is left out")
        return
    for entry in _entries(folder, place):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(folder, entry.path, (*above, here))
        elif not _is_image_name(entry.name):
            folder.others += 1
        elif entry.is_file() or _is_broken_link(entry):
            yield entry.path


def _entries(folder: Folder, place: "str | Path") -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(place) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        folder.notes.append(f"{printable(str(place))} cannot be read ({error.strerror}) and is left out")
        return []


def _identity(place: str) -> tuple[int, int]:
    about = os.stat(place)  # noqa: PTH116
    return about.st_dev, about.st_ino


def _is_broken_link(entry: "os.DirEntry[str]") -> bool:
    """A link to nothing is listed among the files that cannot be read."""
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return True


def _is_image_name(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in image_suffixes()  # noqa: PTH122
