"""Damaged files in the cache: they are noticed before training, and made again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from image_folders import class_folders
from original_files import fashion_mnist

from rankingmatch.core.errors import DataError
from rankingmatch.data import Dataset, benchmark, find_source

DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "empty about.json": ("about.json", lambda content: b""),
    "about.json of zeros": ("about.json", lambda content: bytes(len(content))),
    "about.json without shapes": ("about.json", lambda content: b"{}"),
    "a list in about.json": ("about.json", lambda content: b"[]"),
    "nested about.json": ("about.json", lambda content: b"[" * 100_000),
    "truncated images": ("train.u8", lambda content: content[:-1]),
    "too many images": ("train.u8", lambda content: content + content),
    "truncated labels": ("train-labels.npy", lambda content: content[:-8]),
    "empty labels": ("train-labels.npy", lambda content: b""),
    "a label too large": ("train-labels.npy", lambda content: content[:-8] + (77).to_bytes(8, "little")),
}


def folder(place: Path) -> Dataset:
    return find_source(str(place if place.exists() else class_folders(place))).load()


def fashion(place: Path) -> Dataset:
    if not place.exists():
        fashion_mnist(place)
    return benchmark("fashion-mnist").load(place, 16)


@pytest.mark.parametrize("load", [folder, fashion])
@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_cache_is_made_again(
    case: str, load: Callable[[Path], Dataset], tmp_path: Path, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = load(tmp_path / "photos")
    images, labels = np.array(good.train.images), np.array(good.train.labels)
    name, change = DAMAGES[case]
    for path in own_cache.rglob(name):  # also of the images before they were resized
        content = path.read_bytes()
        path.unlink()  # the good one stays mapped
        path.write_bytes(change(content))
    again = load(tmp_path / "photos")
    assert np.array_equal(again.train.images, images)
    assert np.array_equal(again.train.labels, labels)
    assert "is damaged" in caplog.text
    caplog.clear()
    load(tmp_path / "photos")
    assert "is damaged" not in caplog.text


@pytest.mark.parametrize(
    ("refused", "error"),
    [((Path, "mkdir"), OSError(30, "make it writable")), ((np, "save"), OSError(28, "free some space"))],
)
def test_a_cache_that_cannot_be_written_says_what_to_do_and_nothing_is_left(
    refused: tuple[Any, str], error: OSError, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_folders(tmp_path / "photos")
    monkeypatch.setattr(*refused, Mock(side_effect=OSError(error.errno, "not now")))
    with pytest.raises(DataError, match=rf"not now.*{error.strerror}.*XDG_CACHE_HOME"):
        folder(tmp_path / "photos")
    assert list(own_cache.glob("*")) == []
