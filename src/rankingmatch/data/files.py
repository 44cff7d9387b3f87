"""Where a dataset's original files are: found as archives or unpacked, downloaded if absent, never unpacked to disk."""

import contextlib
import hashlib
import logging
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import platformdirs

from rankingmatch.core.errors import DataError
from rankingmatch.data.formats import Reader, Source

log = logging.getLogger(__name__)

# What the archives' readers raise for damaged ones. RuntimeError: an entry asks for a password.
DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, NotImplementedError, OverflowError, RuntimeError, ValueError),
)


@dataclass(frozen=True)
class File:
    """A file as its authors distribute it."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        """The name it is saved under."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Form:
    """A form in which a dataset is distributed: files, what folder an archive unpacks to, and how to read it."""

    files: tuple[File, ...]
    reader: Reader
    folder: str = ""  # where an archive's content is, once unpacked


@dataclass(frozen=True)
class Found:
    """A dataset's files on disk."""

    form: Form
    paths: tuple[Path, ...]  # the archive or plain files; for an unpacked archive, its files


def default_place() -> Path:
    """Where datasets are kept if nothing else is said."""
    return Path(os.environ.get("RANKINGMATCH_DATA") or platformdirs.user_cache_path("rankingmatch") / "data")


def find(name: str, forms: tuple[Form, ...], data_dir: Path | None, also: tuple[Path, ...] = ()) -> Found:
    """The files of a dataset: in `data_dir`, else in the default place or `also`; downloaded if they are in none."""
    places = [data_dir] if data_dir else [default_place(), *also]
    for place in places:
        for form in forms:
            found = _look(form, place) or _look(form, place / name)
            if found:
                return found
    return _downloaded(name, forms[0], places[0])


def _look(form: Form, place: Path) -> Found | None:
    paths = [place / file.name for file in form.files]
    plain = [path if path.exists() else path.with_suffix("") if path.suffix == ".gz" else path for path in paths]
    present = [path for path in plain if path.is_file()]
    if len(present) == len(plain):
        return Found(form, tuple(plain))
    if present:
        missing = next(path for path in plain if not path.is_file())
        raise DataError(
            f"{missing} is missing beside {present[0].name}; put it there, or remove the others to download all"
        )
    if form.folder and (place / form.folder).is_dir():
        return Found(form, tuple(sorted(path for path in (place / form.folder).rglob("*") if path.is_file())))
    return None


def checksum(found: Found) -> str:
    """MD5 of the files together; one that is not the original's is reported."""
    sums = [_md5(path) for path in found.paths]
    if [path.name for path in found.paths] == [file.name for file in found.form.files]:
        for path, md5, file in zip(found.paths, sums, found.form.files, strict=True):
            if md5 != file.md5:
                log.warning("%s is not the original file (its checksum differs); it is used as it is", path)
    return hashlib.md5("".join(sums).encode()).hexdigest()


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _downloaded(name: str, form: Form, place: Path) -> Found:
    """The files of a form, fetched into `place`; each must be the original."""
    for file in form.files:
        try:
            download(file, place)
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError):
                place.rmdir()  # if it was made for this and is still empty
            raise DataError(
                f"{name} is not here and cannot be downloaded ({_reason(error)}): "
                f"get {file.url} and put it into {place}"
            ) from error
    return Found(form, tuple(place / file.name for file in form.files))


def _reason(error: Exception) -> str:
    return type(error).__name__ if isinstance(error, OSError) else str(error).splitlines()[0]


def download(file: File, place: Path) -> None:
    """Fetch a file with its checksum verified; what an interrupted download left is taken up again."""
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)  # the progress bar says it already
    pooch.retrieve(file.url, f"md5:{file.md5}", fname=file.name, path=place, downloader=_resuming(place / file.name))


def _resuming(target: Path) -> Callable[[str, str, object], None]:
    """A downloader for pooch that keeps what has arrived in a .part file and asks the server for the rest."""
    import requests
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    part = target.with_name(target.name + ".part")

    def fetch(url: str, output: str, _: object) -> None:
        have = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        with requests.get(url, headers=headers, stream=True, timeout=30) as response:
            if response.status_code != requests.codes.requested_range_not_satisfiable:
                response.raise_for_status()
                resumed = response.status_code == requests.codes.partial_content
                total = int(response.headers.get("content-length", 0)) + (have if resumed else 0)
                columns = (*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
                with (
                    part.open("ab" if resumed else "wb") as file,
                    Progress(*columns, console=Console(stderr=True)) as bar,
                ):
                    task = bar.add_task(target.name, total=total or None, completed=have if resumed else 0)
                    for chunk in response.iter_content(1 << 20):
                        file.write(chunk)
                        bar.advance(task, len(chunk))
        # Moved even if it is wrong: the checksum, which pooch looks at next, then starts anew, not for ever in vain.
        part.replace(output)

    return fetch


@contextmanager
def opened(found: Found) -> Iterator[Source]:
    """The dataset's files, ready to be read by name."""
    path = found.paths[0]
    try:
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as archive:
                yield TarSource(archive, path)
        elif path.suffix == ".zip":
            with zipfile.ZipFile(path) as zipped:
                yield ZipSource(zipped, path)
        else:
            yield FolderSource(path.parent, found.form.folder)
    except DAMAGED as error:
        raise DataError(f"{path} is damaged ({error}); remove it and get it again") from error


class FolderSource:
    """Files of a folder; names begin with the folder's own name if it is an unpacked archive."""

    def __init__(self, path: Path, folder: str) -> None:
        # The first file of an unpacked archive may lie deeper than the archive's folder.
        while folder and path.name != folder:
            path = path.parent
        self.root = path.parent if folder else path
        self.inside = path

    def names(self) -> list[str]:
        """All files below."""
        return [path.relative_to(self.root).as_posix() for path in self.inside.rglob("*") if path.is_file()]

    def open(self, name: str) -> IO[bytes]:
        """A file's content."""
        try:
            return (self.root / name).open("rb")
        except OSError as error:
            raise DataError(f"{self.root / name} cannot be read ({error.strerror})") from error


class TarSource:
    """The regular files of a tar archive."""

    def __init__(self, archive: tarfile.TarFile, path: Path) -> None:
        self.archive = archive
        self.path = path
        self.members = {member.name: member for member in archive if member.isfile()}
        refuse_escapes(self.members, path)

    def names(self) -> list[str]:
        """All files."""
        return list(self.members)

    def open(self, name: str) -> IO[bytes]:
        """A file's content."""
        file = self.archive.extractfile(self.members[name]) if name in self.members else None
        if file is None:
            raise DataError(f"{self.path} has no {name}: it is not the original archive; remove it and get it again")
        return file


class ZipSource:
    """The files of a zip archive."""

    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        self.archive = archive
        self.path = path
        refuse_escapes(archive.namelist(), path)

    def names(self) -> list[str]:
        """All files."""
        return self.archive.namelist()

    def open(self, name: str) -> IO[bytes]:
        """A file's content."""
        try:
            return self.archive.open(name)
        except KeyError:
            raise DataError(f"{self.path} has no {name}: it is not the original archive; get it again") from None


def refuse_escapes(names: Iterable[str], path: Path) -> None:
    """Raise DataError for an archive with names that lead out of it: it was made to do harm."""
    for name in names:
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise DataError(
                f"{path} has an entry '{name}' that leads out of the archive; refused, nothing was unpacked"
            )
