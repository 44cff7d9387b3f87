"""What a folder brings to a labeling session: images, labels, and a file for new ones; and the export of its labels."""

import csv
import os
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePath

from rankingmatch.core.atomic import create_directory_beside, unused_path
from rankingmatch.core.errors import DataError
from rankingmatch.core.names import folder_names
from rankingmatch.data.dataset import HELD_OUT, LABELED
from rankingmatch.data.folder_contents import FolderScanner
from rankingmatch.data.label_journal import (
    CLASS_PREFIX,
    LabelEvent,
    csv_rows,
    is_journal,
    parse_events,
    read_table,
    replay,
)
from rankingmatch.labeling.journal import Journal
from rankingmatch.labeling.session import Session, check_class_name


def open_session(folder: Path, labels_csv: Path | None = None, classes: tuple[str, ...] = (), seed: int = 0) -> Session:
    """Scan a folder, or that of a trained run, and open its journal, which is then locked for this process.

    The journal is by default ``labels.csv`` in the folder. Labels of a run are labels to start from.
    """
    for name in classes:
        check_class_name(name)
    run = folder if (folder / "config.json").is_file() else None
    root, earlier, known = folder, None, classes
    if run is not None:
        from rankingmatch.runs.directory import Run

        config = Run(run).config()
        root, earlier = Path(config.dataset), config.data.labels_csv
        if not root.is_dir():
            raise DataError(f"{run} was trained on {config.dataset}, which is not a folder of images")
        if earlier is None:  # the classes were folders
            known = (*classes, *Run(run).load_model()[1].classes)
    held_out = tuple(f"{name}{os.sep}" for name in HELD_OUT)
    files = [file for file in FolderScanner(root).images(root) if not file.startswith(held_out)]
    if not files:
        raise DataError(f"{root} has no images")
    path = journal = labels_csv or root / "labels.csv"
    if path.exists():  # a plain table of labels is left alone, and has its journal beside it
        content = read_table(path)
        first = b"".join(content[: 1 << 12].splitlines()[:1]).decode("utf-8-sig", "replace")
        if not is_journal(content) and {"file", "label"} <= set(next(csv.reader([first]), [])):
            journal = path.with_name(f"{path.stem}-journal{path.suffix}")
    given = [LabelEvent("", name, CLASS_PREFIX) for name in known]
    given += given_labels(root, files, known)
    for table in dict.fromkeys(Path(table) for table in (path, earlier) if table is not None):
        if table.exists() and table.resolve() != journal.resolve():
            given += _labels_of_table(table, set(files))
    return Session(root, files, Journal(journal), given, seed, run)


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


def _labels_of_table(table: Path, files: set[str]) -> list[LabelEvent]:
    """The labels in another CSV file, a journal or a plain table."""
    content = read_table(table)
    if is_journal(content):
        labels = replay(parse_events(content, table)[0])
    else:
        labels = {file: (label, part or "train") for _, file, label, part in csv_rows(table, content)}
    found = ((file, label, part) for file, (label, part) in labels.items() if label or part == "none")
    return [LabelEvent(*row) for row in found if row[0] in files]


def export_folders(session: Session) -> Path:
    """Link or copy all images into a new directory beside the folder, which `rankingmatch train` can use.

    It has labeled/CLASS/, test/CLASS/ with the random checks, and unlabeled/; images of no class are left out.
    """
    with session.lock:
        names = dict(session.labels.classes)
        marks = [session.mark(number) for number in range(len(session.files))]
    folders = dict(zip(names, folder_names(list(names.values())), strict=True))
    target = unused_path(session.root.with_name(f"{session.root.name}-labeled"))
    temporary = None
    try:
        temporary = create_directory_beside(target)
        for file, mark in zip(session.files, marks, strict=True):
            if mark is None or mark.skipped:
                folder = temporary / "unlabeled"
            elif mark.class_id is not None:
                folder = temporary / ("test" if mark.part == "test" else "labeled") / folders[mark.class_id]
            else:
                continue
            folder.mkdir(parents=True, exist_ok=True)
            source, placed = session.root / file, unused_path(folder / PurePath(file).name)
            try:
                placed.symlink_to(source.resolve())
            except OSError:  # links are not possible here
                if source.exists():
                    shutil.copy2(source, placed)
        temporary.replace(target)
    except OSError as error:
        raise DataError(
            f"{target} cannot be written ({error.strerror}); free some space, or make it writable"
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return target
