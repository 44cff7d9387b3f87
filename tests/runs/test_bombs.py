"""Small files that ask for much memory: they are refused before they get it."""

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import original_files
import pytest
from limits import gigabyte
from PIL import Image

from rankingmatch.core.errors import DataError
from rankingmatch.data import benchmark
from rankingmatch.data.decode import UnreadableError, decode


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for a dataset, and a gigabyte of addresses beyond those in use."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    with gigabyte():
        yield tmp_path / "data"


def zipped_zeros() -> bytes:
    """272 MB, zipped."""
    return gzip.compress(bytes(2**24)) * 17  # members one after the other are as good as one


def zeros_as_idx(place: Path) -> str:
    original_files.fashion_mnist(place)
    (place / "train-images-idx3-ubyte.gz").write_bytes(zipped_zeros())
    return "fashion-mnist"


def zeros_in_a_tar(place: Path) -> str:
    about = tarfile.TarInfo("cifar-10-batches-bin/batches.meta.txt")
    about.size = 17 * 2**24
    (place / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(about.tobuf()) + zipped_zeros())
    return "cifar10"


def zeros_in_a_zip(place: Path) -> str:
    with (
        zipfile.ZipFile(place / "tiny-imagenet-200.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("tiny-imagenet-200/wnids.txt", "w") as file,
    ):
        for _ in range(17):
            file.write(bytes(2**24))
    return "tiny-imagenet"


@pytest.mark.parametrize("make", [zeros_as_idx, zeros_in_a_tar, zeros_in_a_zip])
def test_zipped_zeros_do_not_fill_the_memory(make: Callable[[Path], str], place: Path) -> None:
    name = make(place)
    with pytest.raises(DataError, match="256 MB"):
        benchmark(name).load(place)


def test_a_pickle_that_asks_for_memory_is_refused(place: Path) -> None:
    original_files.cifar10_python(place)
    # An empty dictionary, remembered as value 2^31: room for all before it would be 32 GB.
    content = b"\x80\x02}r" + struct.pack("<I", 2**31) + b"."
    (place / "cifar-10-batches-py/data_batch_1").write_bytes(content)
    with pytest.raises(DataError, match="2147483648"):
        benchmark("cifar10").load(place)


def test_a_picture_of_too_many_pixels_is_left_out(place: Path) -> None:
    content = io.BytesIO()
    Image.new("1", (6000, 6000)).save(content, "PNG")
    (place / "bomb.png").write_bytes(content.getvalue())
    assert len(content.getvalue()) < 100_000
    with pytest.raises(UnreadableError, match="6000×6000"):
        decode(str(place / "bomb.png"), (32, 32, 3))


def test_a_large_photograph_is_read_at_a_fraction(place: Path) -> None:
    Image.new("RGB", (9000, 9000), "red").save(place / "photo.jpg")
    assert decode(str(place / "photo.jpg"), (32, 32, 3))[5, 5].tolist() == [254, 0, 0]
