"""Tar files of images in the format of WebDataset: KEY.jpg with its label in KEY.cls or KEY.json.

Nothing is unpacked: Python's tarfile reads the headers, once, and an image is read from its place in the shard.
"""

import posixpath
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from rankingmatch.core.errors import DataError
from rankingmatch.core.names import printable
from rankingmatch.core.untrusted import BadFileError, parse_json
from rankingmatch.data.decode import image_suffixes
from rankingmatch.data.image_files import UnreadableError
from rankingmatch.data.shard_file import MOST_IMAGE, Shard, find_shard, label_text

__all__ = ["Member", "read_tar"]

MOST_HEADER = 2**20  # bytes of a header, with long names
MOST_LABEL = 2**20  # bytes of KEY.json, which may hold anything else, too
BLOCK = 512  # bytes, of which a tar is made


class Member(NamedTuple):
    """A member of a tar: a `StoredImage`, or the label of one.

    Attributes
    ----------
    shard, name
        The tar, and the name in it.
    offset, size
        Where its bytes are, and how many.
    refused
        Why it is not read, such as "is a link"; empty if it is.
    """

    shard: Shard
    name: str
    offset: int
    size: int
    refused: str = ""

    def __str__(self) -> str:
        return f"{self.shard.path}/{self.name}"

    def read(self) -> bytes:
        """Its bytes; UnreadableError if it is refused, if they are too many, or if the shard has changed."""
        if self.refused:
            raise UnreadableError(self.refused)
        if self.size > MOST_IMAGE:
            raise UnreadableError(f"has {self.size:,} bytes, too many for an image in a shard")
        with self.shard.open() as file:
            file.seek(self.offset)
            return file.read(self.size)

    def stamp(self, *, exactly: bool = False) -> str:
        """Its size and place, and the times of the shard."""
        return f"{self.size} {self.offset} {self.shard.stamp(exactly=exactly)}"


def read_tar(path: Path, *, labels: bool) -> Iterator[tuple[Member, str]]:
    """The images of a tar in their order, each with its label, which is empty if there is none.

    Parameters
    ----------
    path
        The tar.
    labels
        Whether to read the labels.

    Raises
    ------
    DataError
        If it is damaged, has two members of the same name, or a label that cannot be read.
    """
    members: dict[str, Member] = {}
    for member in _members(path):
        if members.setdefault(member.name, member) is not member:
            raise DataError(
                f"{printable(str(path))} has two members named {printable(member.name)}; rename one of them, because "
                "names tell which label belongs to which image"
            )
    suffixes = image_suffixes() - {""}
    for name, member in members.items():
        if posixpath.splitext(name)[1].lower() in suffixes:
            yield member, _label(members, name) if labels else ""


# --- headers --------------------------------------------------------------------------------------------------


class _Headers:
    """The file as tarfile reads it: only forward and never much at once, whatever sizes the headers claim."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.tell = file.tell

    def seek(self, position: int) -> int:
        if position < self._file.tell():
            raise tarfile.ReadError("it leads back")
        return self._file.seek(position)

    def read(self, size: int) -> bytes:
        if size > MOST_HEADER:
            raise tarfile.ReadError(f"a header has {size:,} bytes")
        return self._file.read(size)


def _members(path: Path) -> Iterator[Member]:
    """The members of a tar that are not hidden; folders are none."""
    shard = find_shard(path)
    try:
        with shard.open() as file:
            for info in _headers(file):
                parts = [part for part in info.name.split("/") if part not in ("", ".")]
                refused = _reason_to_refuse(info, parts)
                hidden = any(part.startswith(".") and part != ".." for part in parts)
                if not (info.isdir() or hidden):
                    name = info.name if refused else "/".join(parts)
                    yield Member(shard, name, info.offset_data, info.size, refused)
    except UnreadableError as error:
        raise DataError(f"{printable(str(path))} {error}") from error
    except Exception as error:  # tarfile raises many types for a damaged file
        raise DataError(
            f"{printable(str(path))} is not a tar file, or it is damaged or cut short ({printable(str(error))}); make "
            "or copy it again, without compression"
        ) from error


def _headers(file: IO[bytes]) -> Iterator[tarfile.TarInfo]:
    """The headers of a tar; an error if it does not end as a tar ends."""
    with tarfile.open(fileobj=_Headers(file), mode="r:", encoding="utf-8") as tar:  # type: ignore[call-overload]
        while (info := tar.next()) is not None:
            tar.members.clear()  # tarfile would keep them all
            if info.size < 0:
                raise tarfile.ReadError("a size is negative")
            yield info
        file.seek(tar.offset)
        if file.read(BLOCK).strip(b"\0"):  # tarfile takes a damaged header for the end
            raise tarfile.ReadError(f"the header at byte {tar.offset:,} cannot be read")


def _reason_to_refuse(info: tarfile.TarInfo, parts: list[str]) -> str:
    """Why a member is not read; empty if it is."""
    if info.issym() or info.islnk():
        return "is a link"
    if info.issparse() or not info.isreg():
        return "is not a plain file"
    return "has a name that leads out of the shard" if info.name.startswith("/") or ".." in parts else ""


# --- labels ---------------------------------------------------------------------------------------------------


def _label(members: Mapping[str, Member], name: str) -> str:
    """The label of an image: of its name up to the ending, or, as in WebDataset, up to the first dot."""
    folder, base = posixpath.split(name)
    for key in (posixpath.splitext(name)[0], posixpath.join(folder, base.partition(".")[0])):
        for ending, read in ((".cls", _text), (".json", _label_in_json)):
            if (member := members.get(key + ending)) is not None:
                try:
                    return label_text(read(member))
                except (BadFileError, UnreadableError) as error:
                    raise DataError(f"{printable(str(member))} cannot be used: {error}") from error
    return ""


def _text(member: Member) -> str:
    if member.size > MOST_LABEL:
        raise BadFileError(f"it has {member.size:,} bytes, too many for a label")
    try:
        return member.read().decode()
    except UnicodeDecodeError as error:
        raise BadFileError("it is not a text in UTF-8") from error


def _label_in_json(member: Member) -> object:
    values = parse_json(_text(member))
    if not isinstance(values, dict):
        raise BadFileError("it is not a JSON object")
    return values.get("label")
