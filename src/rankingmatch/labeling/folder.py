"""What a folder brings to a labeling session: its pictures, labels that it already has, and the file for new ones."""

import csv
import os
from collections.abc import Iterable
from pathlib import Path, PurePath

from rankingmatch.core.errors import ConfigError, DataError, setting
from rankingmatch.data.folder_contents import LABELED
from rankingmatch.data.folder_scanner import HELD_OUT, FolderScanner, csv_rows
from rankingmatch.data.label_journal import CLASS_PREFIX, LabelEvent, is_journal, parse_events, replay
from rankingmatch.labeling.journal import Journal
from rankingmatch.labeling.session import Session, check_class_name

__all__ = ["folder_of_run", "given_labels", "journal_path", "open_session", "pictures_of"]


def open_session(
    root: Path,
    labels_csv: Path | None = None,
    classes: tuple[str, ...] = (),
    seed: int = 0,
    earlier: Path | None = None,
) -> Session:
    """Scan a folder and open its journal.

    Parameters
    ----------
    root
        The folder.
    labels_csv
        The journal; by default ``labels.csv`` in the folder.
    classes
        Names of classes to start with.
    seed
        The seed of the order of the pictures.
    earlier
        Another CSV file with labels to start from.

    Returns
    -------
    Session
        The session, whose journal is locked for this process.

    Raises
    ------
    DataError
        If there are no pictures, or the journal cannot be used.
    """
    for name in classes:
        check_class_name(name)
    files = pictures_of(root)
    path = labels_csv or root / "labels.csv"
    target = journal_path(path)
    given = [LabelEvent("", name, CLASS_PREFIX) for name in classes]
    given += given_labels(root, files, classes)
    for table in dict.fromkeys(table for table in (path, earlier) if table is not None):
        if table.exists() and table.resolve() != target.resolve():
            given += _labels_of_table(table, files)
    return Session(root, files, Journal(target), given, seed)


def folder_of_run(path: Path) -> tuple[Path, Path | None, Path | None]:
    """The folder to label, for a folder or a trained run: the folder, the labels of the run, and the run."""
    if not path.is_dir():
        raise DataError(f"there is no folder {path}")
    if not (path / "config.json").is_file():
        return path, None, None
    from rankingmatch.runs.directory import Run

    config = Run(path).config()
    if not Path(config.dataset).is_dir():
        raise DataError(f"{path} was trained on {config.dataset}, which is not a folder of images")
    table = config.data.labels_csv
    return Path(config.dataset), None if table is None else Path(table), path


def pictures_of(root: Path) -> list[str]:
    """The images of a folder, relative to it, in an order that depends on their names only."""
    held_out = tuple(f"{name}{os.sep}" for name in HELD_OUT)
    files = [file for file in FolderScanner(root).images(root) if not file.startswith(held_out)]
    if not files:
        raise DataError(f"{root} has no images")
    return files


def journal_path(path: Path) -> Path:
    """The journal for a CSV file: the file itself, or another one beside it if it is a plain table of labels."""
    try:
        with path.open("rb") as file:
            start = file.read(1 << 12)
    except FileNotFoundError:
        return path
    except OSError as error:
        raise ConfigError(f"{setting('labels_csv')} is {path}, which cannot be read ({error.strerror})") from error
    plain = bool(start.strip()) and not is_journal(start) and {"file", "label"} <= set(_columns(start))
    return path.with_name(f"{path.stem}-journal{path.suffix}") if plain else path


def given_labels(root: Path, files: Iterable[str], classes: tuple[str, ...] = ()) -> list[LabelEvent]:
    """The labels that class folders give.

    Class folders are in labeled/ or train/, or beside unlabeled/ or beside loose images, or have the name of a class
    that was given. If every image is in some other folder, the folders may be albums, and give no labels.
    """
    base = next((f"{name}{os.sep}" for name in LABELED if (root / name).is_dir()), "")
    found: dict[str, str] = {}
    loose = False
    for file in files:
        parts = PurePath(file.removeprefix(base)).parts
        if not file.startswith(base) or len(parts) < 2 or (not base and parts[0] == "unlabeled"):
            loose = True
        else:
            found[file] = parts[0]
    names = set(found.values())
    if not base and classes and names & set(classes):
        names &= set(classes)
    elif not base and (not loose or len(names) < 2):
        return []
    return [
        *(LabelEvent("", name, CLASS_PREFIX) for name in sorted(names)),
        *(LabelEvent(file, name, "train") for file, name in found.items() if name in names),
    ]


def _labels_of_table(table: Path, files: list[str]) -> list[LabelEvent]:
    """The labels in another CSV file, a journal or a plain table."""
    try:
        content = table.read_bytes()
    except OSError as error:
        raise DataError(f"{table} cannot be read ({error.strerror})") from error
    if is_journal(content):
        labels = replay(parse_events(content, table)[0])
    else:
        labels = {file: (label, part or "train") for _, file, label, part in csv_rows(table, content)}
    known = set(files)
    return [
        LabelEvent(file, label, part)
        for file, (label, part) in labels.items()
        if file in known and (label or part == "none")
    ]


def _columns(start: bytes) -> list[str]:
    first = start.splitlines()[0].decode("utf-8-sig", "replace")
    return next(csv.reader([first]), [])
