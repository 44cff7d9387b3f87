"""Walking through a folder of images, by names alone: no file is opened."""

import csv
import io
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from rankingmatch.core.errors import DataError, setting
from rankingmatch.core.names import first_few, name_in_cell, printable, text_name
from rankingmatch.core.untrusted import BadFileError, read_bytes
from rankingmatch.data.decode import CONVERT, FOREIGN, image_suffixes
from rankingmatch.data.label_journal import PARTS, is_journal, parse_events, replay
from rankingmatch.data.shard_file import SHARDS

__all__ = ["HELD_OUT", "FolderScanner", "csv_rows", "describe_others", "read_table"]

MOST_TABLE = 2**28  # bytes of a table of labels
DEEPEST = 100  # levels of folders
HELD_OUT = {"val": "validation", "validation": "validation", "test": "test"}


# Labels that other programs write where there is none.
NOTHING = {"None", "none", "NONE", "nan", "NaN", "NAN", "<NA>", "NA", "N/A", "null", "NULL", "-1", "NaT"}


class FolderScanner:
    """Walks through a folder and notes what the user should know."""

    def __init__(self, root: Path, dataset: Path | None = None) -> None:
        self.root = root
        self.dataset = os.path.realpath(dataset or root)  # links do not lead from one part of it into another
        self.notes: list[str] = []
        self.others: Counter[str] = Counter()  # endings of the names of files that are not images
        self.table: str | None = None  # of labels, which may be in the folder

    def class_folders(self, folder: Path, unlabeled: Path | None = None) -> Iterator[tuple[str, str]]:
        """Every image of every class folder, with the folder's name; `unlabeled` is not a class."""
        reserved = {*HELD_OUT, "unlabeled"} if folder == self.root else set()
        loose = []
        for entry in self._entries(folder):
            if entry.name in reserved or entry.name.startswith(".") or (unlabeled and Path(entry.path) == unlabeled):
                continue
            if not entry.is_dir():
                loose += [entry.name] if _is_image_name(entry.name) else []
                self.others.update({_ending(entry.name)} & (FOREIGN | SHARDS))
                continue
            if entry.is_symlink() and self._overlaps(os.path.realpath(entry.path)):
                self.notes.append(
                    f"skipped the class '{printable(entry.name)}': it is a link to another folder in {folder}"
                )
                continue
            name, empty = text_name(entry.name), True
            if os.fsencode(name) != os.fsencode(entry.name) and os.path.lexists(folder / name):
                raise DataError(f"{folder} has two folders whose names are shown as '{name}'; rename one of them")
            for file in self.images(Path(entry.path), stay=True):
                empty = False
                yield file, name
            if empty:
                self.notes.append(f"skipped the class '{printable(name)}': it has no images in {folder}")
        if loose:
            self.notes.append(
                f"skipped {len(loose):,} images in {folder} that are not in a class folder: {first_few(sorted(loose))}"
            )

    def labels_from_csv(self, table: Path) -> dict[str, list[tuple[str, str]]]:
        """All images of the folder with the labels in a CSV file, for each part: "train", and "test" if it has any."""
        self.table = os.fspath(table)
        reserved = tuple(f"{name}{os.sep}" for name in HELD_OUT)
        return self.labeled_by(table, [file for file in self.images(self.root) if not file.startswith(reserved)])

    def labeled_by(self, table: Path, files: list[str]) -> dict[str, list[tuple[str, str]]]:
        """Files, relative to the root, with their labels in a CSV file, for each part."""
        content = read_table(table)
        if is_journal(content):
            events = replay(parse_events(content, table)[0])
            labels = {self._relative(file): (text_name(label), part) for file, (label, part) in events.items()}
        else:
            labels = self._labels_of_table(table, content)
        present = set(files)
        self._note_missing(table, [file for file in labels if file not in present], len(files))
        return self._parts(labels, files)

    def _labels_of_table(self, table: Path, content: bytes) -> dict[str, tuple[str, str]]:
        """The label and the part of every file in a table that somebody has made."""
        labels: dict[str, tuple[str, str]] = {}
        for line, file, label, part in csv_rows(table, content):
            name = self._relative(file)
            if labels.get(name, ("", ""))[0] not in ("", label):
                both = f"'{labels[name][0]}' and '{label}'"
                raise DataError(f"{table}, line {line}: '{printable(file)}' has two labels, {both}")
            labels[name] = label, part
        for label in sorted({label for label, _ in labels.values()} & NOTHING):
            self.notes.append(
                f"'{label}' is a class, because {table} has it as a label; leave it empty if there is none"
            )
        return labels

    def _parts(self, labels: dict[str, tuple[str, str]], files: list[str]) -> dict[str, list[tuple[str, str]]]:
        """The files of each part, with their labels; images of none of the classes are in no part."""
        known = {label for label, part in labels.values() if part in ("", "train")}
        parts: dict[str, list[tuple[str, str]]] = {"train": [], "test": []}
        untrained = []
        for file in files:
            label, part = labels.get(file, ("", ""))
            if part == "test" and label and label not in known:
                untrained.append(file)
            elif part != "none":
                parts["test" if part == "test" and label else "train"].append((file, label))
        if untrained:
            self.notes.append(
                f"skipped {len(untrained):,} test images of classes without training images: {first_few(untrained)}"
            )
        return {name: part for name, part in parts.items() if part or name == "train"}

    def _relative(self, file: str) -> str:
        """A file of a table, relative to the root."""
        return os.path.relpath(os.path.join(self.root, file), self.root) if file else file  # noqa: PTH118

    def _note_missing(self, table: Path, missing: list[str], present: int) -> None:
        if missing and len(missing) > present:
            raise DataError(f"{table} has {len(missing):,} files that are not in {self.root}: {first_few(missing)}")
        if missing:
            self.notes.append(f"{table} has labels for {len(missing):,} files that do not exist: {first_few(missing)}")

    def images(self, folder: Path, *, stay: bool = False) -> Iterator[str]:
        """The images below a folder, relative to the root if they are in it; with `stay`, no link leads out of it."""
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}")
        prefix = os.path.join(self.root, "")  # noqa: PTH118
        for path in self._walk(os.fspath(folder), stay):
            yield path.removeprefix(prefix)

    def _walk(self, folder: str, stay: bool) -> Iterator[str]:
        """The images below a folder, depth first, each folder once; of folders too deep, or behind a link, a note."""
        base = os.path.realpath(folder)
        seen = {_identity(folder)}
        levels = [iter(self._entries(folder))]
        while levels:
            entry = next(levels[-1], None)
            if entry is None:
                levels.pop()
            elif entry.name.startswith("."):
                continue
            elif entry.is_dir():
                if reason := self._reason_to_skip(entry, base, stay, seen, len(levels)):
                    self.notes.append(f"skipped {printable(entry.path)}: {reason}")
                else:
                    seen.add(_identity(entry.path))
                    levels.append(iter(self._entries(entry.path)))
            elif not _is_image_name(entry.name):
                self.others[_ending(entry.name)] += entry.path != self.table
            elif entry.is_file() or _is_broken_link(entry):
                yield entry.path

    def _reason_to_skip(
        self, entry: "os.DirEntry[str]", base: str, stay: bool, seen: set[tuple[int, int]], depth: int
    ) -> str | None:
        """Why a folder is not read; None if it is."""
        if depth >= DEEPEST:
            return f"it is more than {DEEPEST} levels deep"
        if not entry.is_symlink():
            return None
        target = os.path.realpath(entry.path)
        if _is_below(base, target):
            return "it is a link to one of its parent folders"
        if _is_below(target, base) or _identity(entry.path) in seen:
            return "it is a link to a folder that is read already"
        if stay or self._overlaps(target):
            return "it is a link to a folder outside; move the images here"
        return None

    def _overlaps(self, target: str) -> bool:
        """Whether a folder is in the dataset, or the dataset in it."""
        return _is_below(target, self.dataset) or _is_below(self.dataset, target)

    def _entries(self, folder: "str | Path") -> "list[os.DirEntry[str]]":
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.notes.append(f"skipped {printable(str(folder))}: it cannot be read ({error.strerror})")
            return []


def read_table(table: Path) -> bytes:
    """The content of a file of labels, a regular one of bounded size."""
    try:
        return read_bytes(table, MOST_TABLE)
    except BadFileError as error:
        raise DataError(f"{setting('labels_csv')} is {table}, which cannot be read ({error})") from error
    except OSError as error:
        raise DataError(f"{setting('labels_csv')} is {table}, which cannot be read ({error.strerror})") from error


def csv_rows(table: Path, content: bytes) -> Iterator[tuple[int, str, str, str]]:
    """Line number, file, label and part of each row of a CSV file; the column part may be missing."""
    try:
        rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        if not {"file", "label"} <= set(rows.fieldnames or ()):
            raise DataError(f"{table} must have the columns file and label in its first line, separated by commas")
        for row in rows:
            part = (row.get("part") or "").strip()
            if part not in PARTS:
                raise DataError(
                    f"{table}, line {rows.line_num}: part is '{printable(part)}'; it must be train, test or none"
                )
            yield rows.line_num, row["file"] or "", name_in_cell((row["label"] or "").strip()), part
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{setting('labels_csv')} is {table}, which is not a CSV file in UTF-8 ({error})") from error


def _is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it."""
    return os.path.join(path, "").startswith(os.path.join(folder, ""))  # noqa: PTH118


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
    return _ending(name) in image_suffixes()


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122


def describe_others(endings: Mapping[str, int]) -> str:
    """What the files are that are not read as images, and what to do if they are images; empty without such files."""
    found = [f"{count:,} {ending}" for ending, count in Counter(endings).most_common(3) if count]
    if not found:
        return ""
    foreign = next((f"; {CONVERT}" for ending in endings if ending in FOREIGN), "")
    return f" (other files, by their names: {', '.join(found)}{foreign})"
