"""Parquet files as Hugging Face's datasets writes them are read as folders are."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_folders import class_folders
from shard_files import write_parquet

from rankingmatch.core.errors import ConfigError, DataError
from rankingmatch.data import UnreadableError, find_source
from rankingmatch.data import parquet_shards as module
from rankingmatch.data.folder_contents import images_below, scan_folder

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    class_folders(tmp_path / "folder/train")
    class_folders(tmp_path / "folder/test", each=2)
    return tmp_path / "folder"


def images(folder: Path) -> list[bytes | None]:
    return [path.read_bytes() for path in sorted(folder.rglob("*.png"))]


@pytest.fixture
def shards(folder: Path, tmp_path: Path) -> Path:
    write_parquet(
        tmp_path / "shards/train-00000-of-00001.parquet", images(folder / "train"), [0] * 4 + [1] * 4 + [2] * 4
    )
    write_parquet(tmp_path / "shards/test-00000-of-00001.parquet", images(folder / "test"), [0, 0, 1, 1, 2, 2])
    return tmp_path / "shards"


def test_they_give_the_images_labels_and_parts_of_the_same_folder(folder: Path, shards: Path) -> None:
    mine, theirs = (find_source(str(place)).load() for place in (shards, folder))
    assert mine.classes == theirs.classes == ("blue", "green", "red")
    assert mine.test is not None
    assert theirs.test is not None
    for one, other in ((mine.train, theirs.train), (mine.test, theirs.test)):
        np.testing.assert_array_equal(one.images, other.images)
        np.testing.assert_array_equal(one.labels, other.labels)
    assert next(iter(scan_folder(shards).stored)) == "test-00000-of-00001.parquet/000000/0.png"


def test_labels_as_text_numbers_without_names_and_none(tmp_path: Path, folder: Path) -> None:
    three = images(folder)[:3]
    labels: list[list[Any]] = [["b", "a", ""], [7, 5, -1], [None, 8, 9]]
    for values, expected in zip(labels, (["b", "a", ""], ["7", "5", ""], ["", "8", "9"]), strict=True):
        contents = scan_folder(write_parquet(tmp_path / "x.parquet", three, values))
        names = [contents.classes[label] if label >= 0 else "" for _, label in contents.parts["train"]]
        assert names == expected


def test_plain_bytes_without_names(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"img": images(folder)[:3]}), path)
    found = list(images_below(path))
    assert [str(one) for one in found] == [f"{path}/{number:06d}" for number in range(3)]
    assert [one.read() for one in found if not isinstance(one, str)] == images(folder)[:3]


def test_a_row_without_an_image_is_skipped_and_listed(tmp_path: Path, folder: Path) -> None:
    some = [*images(folder / "train"), None, b"bad"]
    dataset = find_source(str(write_parquet(tmp_path / "x.parquet", some, [0, 1] * 7))).load()
    assert dataset.skipped == (("000012/12.png", "is empty"), ("000013/13.png", "is not an image"))
    assert len(dataset.train) == 12


def test_a_file_that_changes_while_it_is_read_gives_no_wrong_pixels(shards: Path) -> None:
    image = next(images_below(shards))
    assert not isinstance(image, str)
    os.utime(shards / "test-00000-of-00001.parquet", ns=(0, 0))
    with pytest.raises(UnreadableError, match="the shard has changed"):
        image.read()


def test_without_pyarrow(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"parquet needs PyArrow; install it: pip install 'rankingmatch\[shards\]'"):
        find_source(str(shards))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"x": [1], "label": [1]}, "it has no column image, but x, label"),
        ({"image": [5], "label": [1]}, "its column image has values of type int64 instead of bytes"),
        ({"image": [{"path": "x"}]}, "its column image has values of type struct"),
        ({"image": [b"x"], "label": [1.5]}, "the label is 1.5; it must be a string or a whole number"),
    ],
)
def test_other_columns_are_errors_of_one_line(tmp_path: Path, columns: dict[str, Any], reason: str) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(DataError) as raised:
        scan_folder(path)
    assert f"{path} cannot be used: {reason}" in str(raised.value)


def test_damaged_files_and_large_groups(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shards / "test-00000-of-00001.parquet"
    monkeypatch.setattr(module, "MOST_ROWS", 3)
    with pytest.raises(DataError, match=r"it has groups of 4 rows .* write it with smaller row groups"):
        scan_folder(path)
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="is not a Parquet file, or it is damaged") as raised:
        scan_folder(path)
    assert "\n" not in str(raised.value)
