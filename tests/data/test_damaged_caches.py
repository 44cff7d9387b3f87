"""Damaged files in the cache: they are noticed before training, and made again."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from image_folders import class_folders
from original_files import fashion_mnist

from rankingmatch.core.errors import DataError
from rankingmatch.data import Dataset, benchmark, find_source
from rankingmatch.data.bank import BankFile, read_bank

DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "empty about.json": ("about.json", lambda content: b""),
    "truncated about.json": ("about.json", lambda content: content[: len(content) // 2]),
    "about.json of zeros": ("about.json", lambda content: bytes(len(content))),
    "about.json without shapes": ("about.json", lambda content: b"{}"),
    "a list in about.json": ("about.json", lambda content: b"[]"),
    "truncated images": ("train.u8", lambda content: content[:-1]),
    "empty images": ("train.u8", lambda content: b""),
    "too many images": ("train.u8", lambda content: content + content),
    "truncated labels": ("train-labels.npy", lambda content: content[:-8]),
    "empty labels": ("train-labels.npy", lambda content: b""),
    "labels of zeros": ("train-labels.npy", lambda content: bytes(len(content))),
    "a label too large": ("train-labels.npy", lambda content: content[:-8] + (77).to_bytes(8, "little")),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def load_folder(place: Path) -> Dataset:
    return find_source(str(place / "photos")).load()


def load_benchmark(place: Path) -> Dataset:
    return benchmark("fashion-mnist").load(place / "photos", 16)


@pytest.fixture(params=["folder", "benchmark"])
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Path], Dataset]]:
    if request.param == "folder":
        class_folders(tmp_path / "photos")
        yield load_folder
    else:
        (tmp_path / "photos").mkdir()
        fashion_mnist(tmp_path / "photos")
        yield load_benchmark


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_made_again(
    damage: str, load: Callable[[Path], Dataset], tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = load(tmp_path)
    images, labels = np.array(good.train.images), np.array(good.train.labels)
    name, change = DAMAGES[damage]
    for path in cache.rglob(name):  # also of the images before they were resized
        path.chmod(0o600)
        content = path.read_bytes()
        path.unlink()  # the good one stays mapped
        path.write_bytes(change(content))
    again = load(tmp_path)
    assert np.array_equal(again.train.images, images)
    assert np.array_equal(again.train.labels, labels)
    assert "is damaged" in caplog.text
    caplog.clear()
    load(tmp_path)
    assert "is damaged" not in caplog.text


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"null", b"\xff", b"[" * 100_000])
def test_damaged_checksums_are_computed_again(content: bytes, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "photos").mkdir()
    fashion_mnist(tmp_path / "photos")
    load_benchmark(tmp_path)
    (table,) = cache.rglob("checksums.json")
    table.write_bytes(content)
    load_benchmark(tmp_path)
    assert json.loads(table.read_text())


@pytest.mark.parametrize("content", [b"", b"x" * 200, "half", "longer"])
def test_a_damaged_bank_is_computed_again(
    content: bytes | str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = np.arange(24, dtype=np.float16).reshape(6, 4)
    files = [BankFile("maps", 6, lambda: iter([values[:3], values[3:]]))]
    path = tmp_path / "banks/one/maps.npy"
    read_bank(path.parent, files)
    good = path.read_bytes()
    path.unlink()
    changed = {"half": good[: len(good) // 2], "longer": good.replace(b"(6, 4)", b"(9, 4)")}
    path.write_bytes(content if isinstance(content, bytes) else changed[content])
    assert np.array_equal(read_bank(path.parent, files)["maps"], values)
    assert "it is computed again" in caplog.text


@pytest.mark.parametrize(
    ("number", "remedy"), [(30, "make it writable"), (13, "make it writable"), (28, "free some space")]
)
def test_a_cache_that_cannot_be_written_says_what_to_do(
    number: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_folders(tmp_path / "photos")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "not now")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DataError, match=rf"cannot be written \(not now\); {remedy}.*XDG_CACHE_HOME"):
        load_folder(tmp_path)
