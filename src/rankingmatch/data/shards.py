"""Shards, files of many images: what their names say about their images, and what they contain.

A tar is in the format of WebDataset: KEY.jpg with its label in KEY.cls or KEY.json. Nothing is unpacked: Python's
tarfile reads the headers, once, and an image is read from its place in the shard.
"""

import os
import posixpath
import re
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from rankingmatch.core.errors import DataError
from rankingmatch.core.names import printable
from rankingmatch.core.untrusted import BadFileError, parse_object
from rankingmatch.data.dataset import HELD_OUT, LABELED
from rankingmatch.data.decode import StoredImage, UnreadableError, image_suffixes

SHARDS = {".tar", ".parquet"}  # endings of their names
PARTS = {**dict.fromkeys(LABELED, "train"), "unlabeled": "unlabeled", **HELD_OUT}  # by words in a shard's name
MOST_IMAGE = 2**28  # bytes of an image in a shard, which is read as a whole
MOST_HEADER = 2**20  # bytes of a header of a tar, with long names
MOST_LABEL = 2**20  # bytes of KEY.json, which may hold anything else, too
LONGEST_LABEL = 255  # characters, as of the name of a folder
BLOCK = 512  # bytes, of which a tar is made


def shards_at(path: Path) -> list[Path]:
    """The shards at a path: the file itself, or all in a folder, sorted, if it has neither folders nor images."""
    if path.suffix.lower() in SHARDS and not path.is_dir():
        return [path] if os.path.lexists(path) else []
    shards = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                ending = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122
                if entry.name.startswith("."):
                    continue
                if is_folder(entry) or (ending and ending in image_suffixes()):
                    return []
                shards += [Path(entry.path)] if ending in SHARDS else []
    except (OSError, ValueError):  # a name with a null byte
        return []
    return sorted(shards)


def is_folder(entry: "os.DirEntry[str]") -> bool:
    """Whether an entry of a folder is a folder, or a link to one; a link to itself is none."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()  # noqa: PTH112


def part_of_shard(path: Path) -> str:
    """What the images of a shard are for, by the words in its name: "train", "unlabeled", "validation" or "test"."""
    found = {PARTS[word] for word in re.split(r"[\W\d_]+", path.stem.lower()) if word in PARTS}
    if len(found) > 1:
        names = " and ".join(sorted(found))
        raise DataError(f"the name of {printable(str(path))} says both {names}; rename it, for example to train-0.tar")
    return found.pop() if found else "train"


def scan_shards(place: Path, *, own_labels: bool = True) -> Iterator[tuple[str, StoredImage, str]]:
    """The images of the shards at a path in their order: the part, the image, and its label or an empty text.

    Unlabeled shards have no labels, and training shards only those in them, unless these are not to be read.
    """
    for shard in shards_at(place):
        part = part_of_shard(shard)
        labels = part in ("validation", "test") or (part == "train" and own_labels)
        for image, label in read_shard(shard, labels=labels):
            yield part, image, label


def stored_images(path: Path) -> Iterator[StoredImage]:
    """All images of the shards at a path, without their labels."""
    for shard in shards_at(path):
        for image, _ in read_shard(shard, labels=False):
            yield image


def read_shard(path: Path, *, labels: bool) -> Iterator[tuple[StoredImage, str]]:
    """The images of a shard in their order, each with its label, which is empty if there is none, or not `labels`.

    Raises DataError if it is damaged, or has labels that cannot be used.
    """
    shard = Shard.at(path)
    if path.suffix.lower() == ".tar":
        return read_tar(shard, labels=labels)
    from rankingmatch.data.parquet_shards import read_parquet

    return read_parquet(shard, labels=labels)


class Shard(NamedTuple):
    """A shard as it was when its contents were listed."""

    path: str
    size: int
    modified: int  # its content, in nanoseconds
    changed: int  # the file was changed or created here

    @classmethod
    def at(cls, path: Path) -> "Shard":
        """The shard at a path as it is now; DataError if there is none that can be read."""
        try:
            status = path.stat()
        except OSError as error:
            raise DataError(f"{printable(str(path))} cannot be read ({error.strerror})") from error
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{printable(str(path))} is not a file")
        return cls(str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def open(self) -> IO[bytes]:
        """Open it to be read; UnreadableError if it has changed meanwhile, so that places in it are no longer known."""
        try:
            file = open(self.path, "rb")  # noqa: PTH123, SIM115
        except OSError as error:
            raise UnreadableError(f"cannot be read ({error.strerror})") from error
        status = os.fstat(file.fileno())
        if (status.st_size, status.st_mtime_ns, status.st_ctime_ns) != self[1:]:
            file.close()
            raise UnreadableError("cannot be read, because the shard has changed meanwhile")
        return file

    def stamp(self, *, exactly: bool) -> str:
        """When it was modified; with `exactly`, also when it was created here."""
        return f"{self.modified} {self.changed}" if exactly else str(self.modified)


def label_text(value: object) -> str:
    """A label in a shard as the name of a class; empty for none, which other programs write as null or -1."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadFileError(f"the label is {value!r:.50}; it must be a string or a whole number")
    text = str(value).strip()
    if len(text) > LONGEST_LABEL:
        raise BadFileError(f"the label has {len(text):,} characters, more than {LONGEST_LABEL}")
    return "" if text == "-1" else text


class Member(NamedTuple):
    """A member of a tar: a `StoredImage`, or the label of one."""

    shard: Shard
    name: str
    offset: int  # of its bytes
    size: int
    refused: str = ""  # why it is not read, such as "is a link"

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


def read_tar(shard: Shard, *, labels: bool) -> Iterator[tuple[Member, str]]:
    """The images of a tar in their order, each with its label."""
    members: dict[str, Member] = {}
    for member in _members(shard):
        if members.setdefault(member.name, member) is not member:
            raise DataError(
                f"{printable(shard.path)} has two members named {printable(member.name)}; rename one of them, because "
                "names tell which label belongs to which image"
            )
    suffixes = image_suffixes() - {""}
    for name, member in members.items():
        if posixpath.splitext(name)[1].lower() in suffixes:
            yield member, _label(members, name) if labels else ""


def _members(shard: Shard) -> Iterator[Member]:
    """The members of a tar that are not hidden; folders are none."""
    try:
        with shard.open() as file:
            for info in _headers(file):
                parts = [part for part in info.name.split("/") if part not in ("", ".")]
                if info.isdir() or any(part.startswith(".") and part != ".." for part in parts):
                    continue
                refused = ""
                if info.issym() or info.islnk():
                    refused = "is a link"
                elif info.issparse() or not info.isreg():
                    refused = "is not a plain file"
                elif info.name.startswith("/") or ".." in parts:
                    refused = "has a name that leads out of the shard"
                name = info.name if refused else "/".join(parts)
                yield Member(shard, name, info.offset_data, info.size, refused)
    except UnreadableError as error:
        raise DataError(f"{printable(shard.path)} {error}") from error
    except Exception as error:  # tarfile raises many types for a damaged file
        raise DataError(
            f"{printable(shard.path)} is not a tar file, or it is damaged or cut short ({printable(str(error))}); make "
            "or copy it again, without compression"
        ) from error


def _headers(file: IO[bytes]) -> Iterator[tarfile.TarInfo]:
    """The headers of a tar; an error if it does not end as a tar ends."""
    with tarfile.open(fileobj=_Forward(file), mode="r:", encoding="utf-8") as tar:  # type: ignore[call-overload]
        while (info := tar.next()) is not None:
            tar.members.clear()  # tarfile would keep them all
            if info.size < 0:
                raise tarfile.ReadError("a size is negative")
            yield info
        file.seek(tar.offset)
        if file.read(BLOCK).strip(b"\0"):  # tarfile takes a damaged header for the end
            raise tarfile.ReadError(f"the header at byte {tar.offset:,} cannot be read")


class _Forward:
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


def _label(members: Mapping[str, Member], name: str) -> str:
    """The label of an image: of its name up to the ending, or, as in WebDataset, up to the first dot."""
    folder, base = posixpath.split(name)
    for key in (posixpath.splitext(name)[0], posixpath.join(folder, base.partition(".")[0])):
        for ending in (".cls", ".json"):
            if (member := members.get(key + ending)) is not None:
                try:
                    if member.size > MOST_LABEL:
                        raise BadFileError(f"it has {member.size:,} bytes, too many for a label")
                    text = member.read().decode()
                    return label_text(text if ending == ".cls" else parse_object(text).get("label"))
                except (UnreadableError, UnicodeDecodeError, BadFileError) as error:
                    raise DataError(f"{printable(str(member))} cannot be used: {error}") from error
    return ""
