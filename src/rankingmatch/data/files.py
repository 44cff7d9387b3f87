"""A dataset's original files: found as archives or unpacked, downloaded if absent, read without unpacking to disk."""

import contextlib
import logging
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path, PurePosixPath
from typing import IO, Any

import platformdirs

from rankingmatch.core.errors import DataError, first_line, setting
from rankingmatch.data.dataset import Progress, no_progress
from rankingmatch.data.readers import OriginalFiles, Reader

# What reading a damaged archive raises. RuntimeError: an entry asks for a password.
DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, NotImplementedError, OverflowError, RuntimeError, ValueError),
)


@dataclass(frozen=True)
class Distribution:
    """A form in which a dataset is distributed."""

    files: Mapping[str, str]  # addresses, and MD5 checksums
    reader: Reader
    folder: str = ""  # that an archive contains

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return [url.rsplit("/", 1)[1] for url in self.files]


@dataclass(frozen=True)
class FoundFiles:
    """A dataset's files on disk: an archive, plain files, or the files of an unpacked archive in `root`."""

    distribution: Distribution
    root: Path
    paths: tuple[Path, ...]


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
    default = os.environ.get("RANKINGMATCH_DATA") or platformdirs.user_cache_path("rankingmatch") / "data"
    directories = [data_dir or Path(default), *other_directories]
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
    directory, distribution = directories[0], distributions[0]
    for url, md5 in distribution.files.items():
        try:
            download(url, md5, directory, progress)
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError):
                directory.rmdir()  # if it was made for this and is still empty
            reason = type(error).__name__ if isinstance(error, OSError) else first_line(error)
            raise DataError(
                f"{name} was not found and cannot be downloaded ({reason}): download {url} and put it into {directory}"
            ) from error
    return FoundFiles(distribution, directory, tuple(directory / name for name in distribution.names))


def _files_in(directory: Path, distribution: Distribution) -> FoundFiles | None:
    paths = [directory / name for name in distribution.names]
    plain = [path if path.exists() or path.suffix != ".gz" else path.with_suffix("") for path in paths]
    present = [path for path in plain if path.is_file()]
    if len(present) == len(plain):
        return FoundFiles(distribution, directory, tuple(plain))
    if present:
        missing = next(path for path in plain if path not in present)
        raise DataError(
            f"{missing} is missing, but {present[0].name} is there; add it, or delete the others to download all"
        )
    unpacked = directory / distribution.folder
    if not distribution.folder or not unpacked.is_dir():
        return None
    return FoundFiles(distribution, unpacked, tuple(sorted(path for path in unpacked.rglob("*") if path.is_file())))


def download(url: str, md5: str, directory: Path, progress: Progress = no_progress) -> None:
    """Download a file and verify its checksum; an interrupted download is kept in a .part file, and resumed."""
    import pooch
    import requests

    name = url.rsplit("/", 1)[1]
    part = directory / f"{name}.part"

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
                with part.open("ab" if resumed else "wb") as target:
                    for content in response.iter_content(1 << 20):
                        target.write(content)
                        done += len(content)
                        progress(f"downloading {name}", done, total)
        # Moved even if it is wrong: pooch then deletes it, and the next attempt does not resume from wrong content.
        part.replace(output)

    pooch.get_logger().setLevel(logging.WARNING)  # `progress` reports what it would log
    pooch.retrieve(url, f"md5:{md5}", fname=name, path=directory, downloader=fetch)


@contextmanager
def open_files(found: FoundFiles) -> Iterator[OriginalFiles]:
    """Open a dataset's files, to be read by their names in the folder of the distribution."""
    path, prefix = found.paths[0], f"{found.distribution.folder}/"
    members: dict[str, Any]
    opened: Callable[[Any], IO[bytes] | None]
    try:
        with contextlib.ExitStack() as stack:
            if path.name.endswith(".tar.gz"):
                tar = stack.enter_context(tarfile.open(path))
                members, opened = {member.name: member for member in tar if member.isfile()}, tar.extractfile
            elif path.suffix == ".zip":
                zipped = stack.enter_context(zipfile.ZipFile(path))
                members, opened = {member.filename: member for member in zipped.infolist()}, zipped.open
            else:
                path, prefix = found.root, ""
                members = {file.relative_to(path).as_posix(): file for file in found.paths}
                opened = methodcaller("open", "rb")
            for name in members:
                if name.startswith("/") or ".." in PurePosixPath(name).parts:
                    raise DataError(f"{path} has an entry '{name}' outside of the archive; refused, nothing was read")
            inside = {name.removeprefix(prefix): member for name, member in members.items() if name.startswith(prefix)}
            yield OriginalFiles(path, inside, opened)
    except DAMAGED as error:
        raise DataError(f"{path} is damaged ({error}); delete it and download it again") from error
