"""Tar files made to fill the memory, to take forever, or to lead elsewhere: one line, and nothing is unpacked."""

import os
import tarfile
import tracemalloc
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from image_folders import picture
from shard_files import member, write_tar

from rankingmatch.core.errors import DataError
from rankingmatch.data import UnreadableError, images_below
from rankingmatch.data.folder_contents import scan_folder


@pytest.fixture
def image(tmp_path: Path) -> bytes:
    return picture(tmp_path / "made.png").read_bytes()


def bare_header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A header that claims a size, without the content."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def refused(path: Path) -> str:
    """The message about a damaged tar, which takes no memory."""
    tracemalloc.start()
    with pytest.raises(DataError, match=f"{path} is not a tar file, or it is damaged") as raised:
        scan_folder(path)
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def damaged(image: bytes) -> Iterator[tuple[bytes, str]]:
    """Tars that are cut short or whose headers are wrong, and what the message says of one."""
    block = image.ljust(-(-len(image) // 512) * 512, b"\0")
    one, other = (bare_header(name, len(image)) + block for name in ("a.png", "b.png"))
    yield b"", ""
    yield from (((one + other)[:-cut], "") for cut in (1, 100, 511, 512, 600, 1500))
    yield one + b"garbage!" * 64 + other[512:] + bytes(1024), f"the header at byte {len(one):,} cannot be read"
    kinds = (tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_SPARSE)
    for kind, size in product(kinds, (10 * 2**30, 2**62)):
        yield bare_header("a.png", size, kind) + bytes(1024), ""
    for size in (-256, -512, -1024, -4096):  # otherwise it would be read in a circle
        header = bytearray(bare_header("b.png", 0))
        header[124:136] = size.to_bytes(12, "big", signed=True)  # the binary form of GNU tar
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        yield one + bytes(header) + bytes(1024), ""
    yield (bare_header("x", 12, tarfile.XHDTYPE) + b"12 path=a.j\n".ljust(512, b"\0")) * 5000 + bytes(1024), ""


def test_a_damaged_tar(image: bytes, tmp_path: Path) -> None:
    for number, (content, words) in enumerate(damaged(image)):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(content)
        assert words in refused(path)


def test_a_sparse_file_of_ten_gigabytes_is_not_read(image: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    size = 10 * 2**30
    with path.open("wb") as file:
        file.write(bare_header("a.png", size))
        file.truncate(512 + size + 1024)
    (found,) = images_below(path)
    tracemalloc.start()
    with pytest.raises(UnreadableError, match="has 10,737,418,240 bytes"):
        found.read()  # type: ignore[union-attr]
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_long_header_of_a_sparse_file_is_not_read(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "x.tar"
    with path.open("wb") as file:
        file.write(bare_header("a.png", 2**30, kind))
        file.truncate(2**30 + 4096)
    assert "a header has 1,073,741,824 bytes" in refused(path)


def test_names_that_are_not_utf_8_or_cannot_be_printed(image: bytes, tmp_path: Path) -> None:
    names = ["caf\udce9.png", "li\nne.png"]
    path = write_tar(tmp_path / "x.tar", [member(name, image) for name in names], tarfile.GNU_FORMAT)
    assert [str(found) for found in images_below(path)] == [f"{path}/{name}" for name in names]


def test_what_cannot_be_read_is_named(image: bytes, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tar")
    (tmp_path / "broken.tar").symlink_to("nowhere")
    link = member("a.cls", type=tarfile.SYMTYPE, linkname="/etc/hostname")
    write_tar(tmp_path / "x.tar", [member("a.png", image), link])
    write_tar(tmp_path / "y.tar", [member("a.png", image), member("./a.png", image)])
    problems = {
        "x": r"a\.cls .* is a link",
        "y": r"y\.tar has two members named a\.png; rename one of them",
        "pipe": r"pipe\.tar is not a file",
        "broken": r"broken\.tar cannot be read \(No such file",
    }
    for name, problem in problems.items():
        with pytest.raises(DataError, match=problem):
            scan_folder(tmp_path / f"{name}.tar")
