"""A dataset's original files: found as archives or unpacked, downloaded if absent, read without unpacking to disk."""

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
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import platformdirs

from rankingmatch.core.errors import DataError, first_line, setting
from rankingmatch.data.progress import Progress, no_progress
from rankingmatch.data.readers import OriginalFiles, Reader

__all__ = [
    "Distribution",
    "FoundFiles",
    "RemoteFile",
    "checksum",
    "download",
    "find_files",
    "open_files",
    "without_downloads",
]

log = logging.getLogger(__name__)

# What reading a damaged archive raises. RuntimeError: an entry asks for a password.
DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, NotImplementedError, OverflowError, RuntimeError, ValueError),
)


@dataclass(frozen=True)
class RemoteFile:
    """A file as its authors distribute it."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        """The name under which it is saved."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Distribution:
    """A form in which a dataset is distributed: its files, how to read them, and the folder an archive unpacks to."""

    files: tuple[RemoteFile, ...]
    reader: Reader
    folder: str = ""


@dataclass(frozen=True)
class FoundFiles:
    """A dataset's files on disk: an archive, plain files, or the files of an unpacked archive."""

    distribution: Distribution
    paths: tuple[Path, ...]


def default_data_directory() -> Path:
    """The directory of original files unless another is given."""
    return Path(os.environ.get("RANKINGMATCH_DATA") or platformdirs.user_cache_path("rankingmatch") / "data")


_downloads_allowed = ContextVar("downloads_allowed", default=True)


@contextmanager
def without_downloads() -> Iterator[None]:
    """Inside, datasets are read but not downloaded, because the user has not chosen the directory."""
    token = _downloads_allowed.set(False)
    try:
        yield
    finally:
        _downloads_allowed.reset(token)


def find_files(
    name: str,
    distributions: tuple[Distribution, ...],
    data_dir: Path | None,
    other_directories: tuple[Path, ...] = (),
    progress: Progress = no_progress,
) -> FoundFiles:
    """Find the files of a dataset in `data_dir` or the default directory, or else in others; else download them."""
    directories = [data_dir or default_data_directory(), *other_directories]
    for directory in directories:
        for distribution in distributions:
            found = _files_in(directory, distribution) or _files_in(directory / name, distribution)
            if found:
                return found
    if not _downloads_allowed.get():
        raise DataError(
            f"{name} is not in {directories[0]}, the directory that the run's config.json has; put its files there, or "
            f"resume with {setting('data_dir')}"
        )
    return _download_all(name, distributions[0], directories[0], progress)


def _files_in(directory: Path, distribution: Distribution) -> FoundFiles | None:
    paths = [directory / file.name for file in distribution.files]
    plain = [path if path.exists() else path.with_suffix("") if path.suffix == ".gz" else path for path in paths]
    present = [path for path in plain if path.is_file()]
    if len(present) == len(plain):
        return FoundFiles(distribution, tuple(plain))
    if present:
        missing = next(path for path in plain if not path.is_file())
        raise DataError(
            f"{missing} is missing, but {present[0].name} is there; add it, or delete the others to download all"
        )
    unpacked = directory / distribution.folder
    if distribution.folder and unpacked.is_dir():
        return FoundFiles(distribution, tuple(sorted(path for path in unpacked.rglob("*") if path.is_file())))
    return None


def checksum(found: FoundFiles) -> str:
    """MD5 of all files together; a warning is logged for a file that is not the original."""
    sums = [_md5(path) for path in found.paths]
    originals = found.distribution.files
    if [path.name for path in found.paths] == [file.name for file in originals]:
        for path, md5, file in zip(found.paths, sums, originals, strict=True):
            if md5 != file.md5:
                log.warning("%s is not the original file (its checksum differs); it is used anyway", path)
    return hashlib.md5("".join(sums).encode()).hexdigest()


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


# --- download ------------------------------------------------------------------------------------------------


def _download_all(name: str, distribution: Distribution, directory: Path, progress: Progress) -> FoundFiles:
    for file in distribution.files:
        try:
            download(file, directory, progress)
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError):
                directory.rmdir()  # if it was made for this and is still empty
            reason = type(error).__name__ if isinstance(error, OSError) else first_line(error)
            raise DataError(
                f"{name} was not found and cannot be downloaded ({reason}): download {file.url} and put it into "
                f"{directory}"
            ) from error
    return FoundFiles(distribution, tuple(directory / file.name for file in distribution.files))


def download(file: RemoteFile, directory: Path, progress: Progress = no_progress) -> None:
    """Download a file and verify its checksum; an interrupted download is resumed."""
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)  # `progress` reports what it would log
    downloader = _resuming(directory / file.name, progress)
    pooch.retrieve(file.url, f"md5:{file.md5}", fname=file.name, path=directory, downloader=downloader)


def _resuming(target: Path, progress: Progress) -> Callable[[str, str, object], None]:
    """A downloader for pooch that keeps an incomplete download in a .part file and requests the rest of it."""
    import requests

    part = target.with_name(target.name + ".part")

    def fetch(url: str, output: str, _: object) -> None:
        done = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={done}-"} if done else {}
        with requests.get(url, headers=headers, stream=True, timeout=30) as response:
            if response.status_code != requests.codes.requested_range_not_satisfiable:
                response.raise_for_status()
                resumed = response.status_code == requests.codes.partial_content
                done = done if resumed else 0
                length = int(response.headers.get("content-length", 0))
                total = done + length if length else None
                with part.open("ab" if resumed else "wb") as file:
                    for content in response.iter_content(1 << 20):
                        file.write(content)
                        done += len(content)
                        progress(f"downloading {target.name}", done, total)
        # Moved even if it is wrong: pooch then deletes it, and the next attempt does not resume from wrong content.
        part.replace(output)

    return fetch


# --- archives ------------------------------------------------------------------------------------------------


@contextmanager
def open_files(found: FoundFiles) -> Iterator[OriginalFiles]:
    """Open a dataset's files, to be read by name."""
    path = found.paths[0]
    try:
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as archive:
                yield TarFiles(archive, path)
        elif path.suffix == ".zip":
            with zipfile.ZipFile(path) as zipped:
                yield ZipFiles(zipped, path)
        else:
            yield DirectoryFiles(path.parent, found.distribution.folder)
    except DAMAGED as error:
        raise DataError(f"{path} is damaged ({error}); delete it and download it again") from error


class DirectoryFiles:
    """The files of a directory; if it is an unpacked archive, names begin with the folder that was in the archive."""

    def __init__(self, path: Path, folder: str) -> None:
        # The first file of an unpacked archive may be in a subfolder.
        while folder and path.name != folder:
            path = path.parent
        self.root = path.parent if folder else path
        self.directory = path

    def names(self) -> list[str]:
        """All files below the directory."""
        return [path.relative_to(self.root).as_posix() for path in self.directory.rglob("*") if path.is_file()]

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        try:
            return (self.root / name).open("rb")
        except OSError as error:
            raise DataError(f"{self.root / name} cannot be read ({error.strerror})") from error


class TarFiles:
    """The regular files of a tar archive."""

    def __init__(self, archive: tarfile.TarFile, path: Path) -> None:
        self.archive = archive
        self.path = path
        self.members = {member.name: member for member in archive if member.isfile()}
        refuse_outside_names(self.members, path)

    def names(self) -> list[str]:
        """All files."""
        return list(self.members)

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        file = self.archive.extractfile(self.members[name]) if name in self.members else None
        if file is None:
            raise _missing_entry(self.path, name)
        return file


class ZipFiles:
    """The files of a zip archive."""

    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        self.archive = archive
        self.path = path
        refuse_outside_names(archive.namelist(), path)

    def names(self) -> list[str]:
        """All files."""
        return self.archive.namelist()

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        try:
            return self.archive.open(name)
        except KeyError:
            raise _missing_entry(self.path, name) from None


def _missing_entry(path: Path, name: str) -> DataError:
    return DataError(f"{path} has no {name}, so it is not the original archive; delete it and download it again")


def refuse_outside_names(names: Iterable[str], path: Path) -> None:
    """Raise DataError for an archive with names outside of it, which is malicious."""
    for name in names:
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise DataError(f"{path} has an entry '{name}' outside of the archive; refused, nothing was unpacked")
