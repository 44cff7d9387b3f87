"""The labeled pictures as class folders."""

import shutil
from pathlib import Path

from rankingmatch.core.atomic import create_directory_beside, unused_path
from rankingmatch.core.errors import DataError
from rankingmatch.core.names import folder_names
from rankingmatch.labeling.session import Session

__all__ = ["export_folders"]


def export_folders(session: Session) -> Path:
    """Link or copy all pictures into a new directory beside the folder, which `rankingmatch train` can use.

    It has labeled/CLASS/, test/CLASS/ with the audit pictures, and unlabeled/; pictures of no class are left out.

    Parameters
    ----------
    session
        The session.

    Returns
    -------
    Path
        The new directory.

    Raises
    ------
    DataError
        If it cannot be written.
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
                _place(session.root / file, temporary / "unlabeled")
            elif mark.class_id is not None:
                part = "test" if mark.part == "test" else "labeled"
                _place(session.root / file, temporary / part / folders[mark.class_id])
        temporary.replace(target)
    except OSError as error:
        raise DataError(
            f"{target} cannot be written ({error.strerror}); free some space, or make it writable"
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def _place(source: Path, folder: Path) -> None:
    """Link a file into a folder, or copy it where links are not possible; a missing file is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    target = unused_path(folder / source.name)
    try:
        target.symlink_to(source.resolve())
    except OSError:
        if source.exists():
            shutil.copy2(source, target)
