"""Walking through a folder of images, by names alone: no file is opened."""

import csv
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rankingmatch.core.errors import DataError, setting
from rankingmatch.data.decode import image_suffixes
from rankingmatch.data.names import first_few, printable

__all__ = ["HELD_OUT", "FolderScanner"]

HELD_OUT = {"val": "validation", "validation": "validation", "test": "test"}


class FolderScanner:
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
