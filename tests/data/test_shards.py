"""Shards, tar and Parquet, hold what folders hold, and are read as folders are."""

import json
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_folders import picture
from limits import gigabyte
from shard_files import member, samples, shards_of, write_parquet, write_tar

from rankingmatch.core.errors import ConfigError, DataError
from rankingmatch.data import (
    Dataset,
    DataSettings,
    Images,
    UnreadableError,
    find_source,
    images_below,
    labeled_files,
    make_split,
)
from rankingmatch.data.folder_contents import scan_folder
from rankingmatch.data.shards import part_of_shard, shards_at


@pytest.fixture
def shards(photos: Path, tmp_path: Path) -> Path:
    return shards_of(photos, tmp_path / "shards")


@pytest.fixture
def image(tmp_path: Path) -> bytes:
    return picture(tmp_path / "made/one.png").read_bytes()


def contents_of(folder: Path) -> list[bytes | None]:
    return [path.read_bytes() for path in sorted(folder.rglob("*.png"))]


@pytest.fixture
def parquet(photos: Path, tmp_path: Path) -> Path:
    """The labeled and the test images of `photos`."""
    pytest.importorskip("pyarrow")
    for part, each in (("labeled", 4), ("test", 3)):
        labels = [0] * each + [1] * each + [2] * each
        write_parquet(tmp_path / f"parquet/{part}-00000-of-00001.parquet", contents_of(photos / part), labels)
    return tmp_path / "parquet"


def load(place: Path, **settings: Any) -> Dataset:
    return find_source(str(place), **settings).load()


def assert_same(one: Images | None, other: Images | None) -> None:
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.images, other.images)
    np.testing.assert_array_equal(one.labels, other.labels)


def labels_in(place: Path) -> list[str]:
    """The names of the training labels; empty for none."""
    contents = scan_folder(place)
    return [contents.classes[label] if label >= 0 else "" for _, label in contents.parts["train"]]


def test_shards_give_the_images_labels_parts_and_splits_of_the_same_folder(photos: Path, shards: Path) -> None:
    assert len(list(shards.iterdir())) == 3 + 2 + 2 + 2
    mine, theirs = find_source(str(shards)), find_source(str(photos))
    assert (mine.shape, mine.side, mine.preset()) == (theirs.shape, theirs.side, theirs.preset())
    assert (mine.title, mine.description) == ("shards", theirs.description)
    one, other = mine.load(), theirs.load()
    assert one.classes == other.classes
    for part in ("train", "validation", "test"):
        assert_same(getattr(one, part), getattr(other, part))
    first, second = (make_split(dataset, DataSettings(labels=6), 3) for dataset in (one, other))
    np.testing.assert_array_equal(first.labels, second.labels)
    np.testing.assert_array_equal(first.unlabeled_rows, second.unlabeled_rows)


def test_parquet_files_give_the_images_labels_and_parts_of_the_same_folder(photos: Path, parquet: Path) -> None:
    mine, theirs = load(parquet), load(photos)
    assert mine.classes == theirs.classes == ("blue", "green", "red")
    assert_same(mine.train, theirs.train.take(np.arange(12)))
    assert_same(mine.test, theirs.test)
    assert next(iter(scan_folder(parquet).stored)) == "labeled-00000-of-00001.parquet/000000/0.png"


def test_labels_from_a_table(shards: Path, tmp_path: Path) -> None:
    files = [file for file, _ in scan_folder(shards).parts["train"]]
    assert files[0] == "labeled-0.tar/0000.png"
    rows = [f"{file},{'odd' if number % 2 else 'even'}" for number, file in enumerate(files[:10])]
    (tmp_path / "labels.csv").write_text("\n".join(["file,label", *rows]))
    for shard in [*shards.glob("val-*"), *shards.glob("test-*")]:
        shard.unlink()
    dataset = load(shards, labels_csv=str(tmp_path / "labels.csv"))
    assert dataset.classes == ("even", "odd")
    assert dataset.train.labels.tolist() == [0, 1] * 5 + [-1] * 8


def test_a_single_shard_and_unlabeled_shards_beside_a_folder_and_beside_shards(photos: Path, tmp_path: Path) -> None:
    more = write_tar(tmp_path / "more/train-0.tar", samples(photos / "test"))
    assert load(photos, unlabeled=str(more)).train.labels.tolist() == load(photos).train.labels.tolist() + [-1] * 9
    one = write_tar(tmp_path / "one.tar", samples(photos / "labeled"))
    assert_same(load(one).train, load(photos / "labeled").train)
    assert next(iter(scan_folder(one).stored)) == "0000.png"
    for unlabeled, count in ((more.parent, 9), (photos / "unlabeled", 6)):
        assert load(one, unlabeled=str(unlabeled)).train.labels.tolist().count(-1) == count


LABELS = {
    "a.cls": (b"cat\n", "cat"),
    "b.cls": (b"3", "3"),
    "c.cls": (b"-1", ""),
    "d.cls": (b" ", ""),
    "e.json": (b'{"label": "dog", "more": [1]}', "dog"),
    "f.json": (b'{"label": 3}', "3"),
    "g.json": (b'{"caption": "x"}', ""),
    "h.json": (b'{"label": null}', ""),
    "i.left.cls": (b"cat", "cat"),
    "j.cls": (b"dog", "dog"),
}


def test_every_form_of_a_label(tmp_path: Path, image: bytes) -> None:
    found = [member(name, content) for name, (content, _) in LABELS.items()]
    images = [member(f"{name.removesuffix('.cls').removesuffix('.json')}.PNG", image) for name in LABELS]
    images[-1][0].name = "j.right.png"  # the key of WebDataset ends at the first dot
    assert labels_in(write_tar(tmp_path / "x.tar", [*images, *found])) == [label for _, label in LABELS.values()]


def test_every_form_of_a_label_in_parquet(tmp_path: Path, image: bytes) -> None:
    pytest.importorskip("pyarrow")
    forms: list[tuple[list[Any], list[str]]] = [(["b", "a", ""], ["b", "a", ""]), ([7, 5, -1], ["7", "5", ""])]
    for values, names in [*forms, ([None, 8, 9], ["", "8", "9"])]:
        assert labels_in(write_parquet(tmp_path / "x.parquet", [image] * 3, values)) == names


PARTS = {
    **{"train-0.tar": "train", "labeled_00.tar": "train", "cats.tar": "train", "000.tar": "train"},
    **{"val-0.tar": "validation", "imagenet-validation-000.tar": "validation", "test12.tar": "test"},
    **{"unlabeled.tar": "unlabeled", "latest-0.tar": "train", "TEST.TAR": "test"},
}


def test_the_name_of_a_shard_says_what_it_is_for() -> None:
    assert {name: part_of_shard(Path("test") / name) for name in PARTS} == PARTS
    with pytest.raises(DataError, match=r"train-test-0\.tar says both test and train"):
        part_of_shard(Path("train-test-0.tar"))


def test_a_folder_with_images_or_folders_is_not_one_of_shards(shards: Path) -> None:
    (shards / "README.md").write_text("cats")
    (shards / ".hidden").mkdir()
    assert [path.name for path in shards_at(shards)] == sorted(path.name for path in shards.glob("*.tar"))
    picture(shards / "loose.png")
    assert shards_at(shards) == []
    (shards / "loose.png").unlink()
    (shards / "cats").mkdir()
    assert shards_at(shards) == []
    with pytest.raises(DataError, match=r"no class folders with images \(other files, by their names: 9 \.tar\)"):
        scan_folder(shards)


def test_evaluation_takes_the_test_shards_or_else_the_labeled_ones(shards: Path) -> None:
    classes = ("blue", "green", "red")
    files, labels = labeled_files(shards, classes)
    assert labels == [0] * 3 + [1] * 3 + [2] * 3
    assert str(files[0]) == f"{shards}/test-0.tar/0000.png"
    for shard in shards.glob("test-*"):
        shard.unlink()
    assert labeled_files(shards, classes)[1] == [0] * 4 + [1] * 4 + [2] * 4
    with pytest.raises(DataError, match="class 'red', only on blue, green"):
        labeled_files(shards, classes[:2])
    with pytest.raises(DataError, match="has no images with labels"):
        labeled_files(shards / "unlabeled-0.tar", classes)


def test_plain_bytes_in_parquet_without_names(tmp_path: Path, photos: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, images = tmp_path / "x.parquet", contents_of(photos)[:3]
    parquet.write_table(pyarrow.table({"img": images}), path)
    found = list(images_below(path))
    assert [str(one) for one in found] == [f"{path}/{number:06d}" for number in range(3)]
    assert [one.read() for one in found if not isinstance(one, str)] == images


def test_one_large_value_in_many_rows_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("rankingmatch.data.parquet_shards.MOST_GROUP", 2**26)
    rows = 80
    for kind, part in ((pyarrow.binary(), "bytes"), (pyarrow.string(), "path")):  # each 1.3 GB if all are made at once
        large = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows), pyarrow.array([b"x" * 2**24], kind))
        small = pyarrow.array([b"x"] * rows, pyarrow.string() if part == "bytes" else pyarrow.binary())
        image = pyarrow.StructArray.from_arrays([large, small], [part, "bytes" if part == "path" else "path"])
        path = tmp_path / f"{part}.parquet"
        parquet.write_table(pyarrow.table({"image": image}), path, store_schema=False)
        assert path.stat().st_size < 2**21
        with gigabyte():
            first, *_, last = found = [image for image in images_below(path) if not isinstance(image, str)]
            assert len(found) == rows
            if part == "path":
                assert len(first.read() + last.read()) == 2
                assert len(str(first)) < 2**14
            else:
                for one in (first, last):
                    with pytest.raises(UnreadableError, match="have more than 67,108,864 bytes"):
                        one.read()


def test_the_cache_is_used_until_a_shard_changes(shards: Path, own_cache: Path) -> None:
    first = load(shards).fingerprint
    assert load(shards).fingerprint == first
    assert len(list(own_cache.iterdir())) == 1
    os.utime(shards / "labeled-0.tar", ns=(0, 0))
    assert load(shards).fingerprint != first
    assert len(list(own_cache.iterdir())) == 2


@pytest.mark.parametrize("kind", ["shards", "parquet"])
def test_a_shard_that_changes_while_it_is_read_gives_no_wrong_pixels(kind: str, request: pytest.FixtureRequest) -> None:
    place: Path = request.getfixturevalue(kind)
    first, *_ = images_below(place)
    assert not isinstance(first, str)
    if kind == "shards":  # rows of Parquet are read in groups, which are kept
        assert first.read().startswith(b"\x89PNG")
    for path in place.iterdir():
        os.utime(path, ns=(0, 0))
    with pytest.raises(UnreadableError, match="the shard has changed"):
        first.read()


def test_what_is_no_shard_or_has_no_labels_is_an_error(tmp_path: Path, image: bytes) -> None:
    with pytest.raises(DataError, match=r"x\.tar have no labels; .* or use labels_csv"):
        scan_folder(write_tar(tmp_path / "x.tar", [member("a.png", image)]))
    (tmp_path / "shard.tar.gz").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"a shard, whose name ends in \.tar or \.par"):
        find_source(str(tmp_path / "shard.tar.gz"))


def test_evaluated_images_without_labels_are_left_out(shards: Path, image: bytes) -> None:
    write_tar(shards / "test-9.tar", [member("bare.png", image)])
    contents = scan_folder(shards)
    assert contents.notes == ("skipped 1 test images without labels: test-9.tar/bare.png",)
    assert len(contents.parts["test"]) == 9


def test_damaged_images_are_skipped_and_listed(photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    members = samples(photos / "labeled")
    link = member("9.png", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    bad = [
        *[member("1x.png", b"damaged"), member("2x.png"), link, member("../../3x.png", members[0][1])],
        *[member("/4x.png", members[0][1]), member("5x.png", type=tarfile.FIFOTYPE)],
        *[member(".hidden.png", b"x"), member("__/.x/y.png", b"x"), member("folder.png", type=tarfile.DIRTYPE)],
    ]
    dataset = load(write_tar(tmp_path / "x.tar", [*members, *bad]))
    assert dict(dataset.skipped) == {
        "1x.png": "is not an image",
        "2x.png": "is empty",
        "9.png": "is a link",
        "../../3x.png": "has a name that leads out of the shard",
        "/4x.png": "has a name that leads out of the shard",
        "5x.png": "is not a plain file",
    }
    assert "skipped 6 files: 1x.png is not an image, 2x.png is empty" in caplog.text
    assert len(dataset.train) == 12
    pytest.importorskip("pyarrow")
    some = [*contents_of(photos / "labeled"), None, b"bad"]
    dataset = load(write_parquet(tmp_path / "x.parquet", some, [0, 1] * 7))
    assert dataset.skipped == (("000012/12.png", "is empty"), ("000013/13.png", "is not an image"))
    assert len(dataset.train) == 12


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b'{"label": 1.5}', "label is 1.5"),
        (b'{"label": true}', "label is True"),
        (json.dumps({"label": "x" * 300}).encode(), "300 characters"),
        (b"\xff", "utf-8"),
        (b"x" * (2**20 + 1), "1,048,577 bytes"),
    ],
)
def test_json_that_is_no_label_is_an_error_of_one_line(
    content: bytes, problem: str, tmp_path: Path, image: bytes
) -> None:
    path = write_tar(tmp_path / "x.tar", [member("a.png", image), member("a.json", content)])
    with pytest.raises(DataError, match=f"x.tar/a.json .*{problem}") as raised:
        scan_folder(path)
    assert "\n" not in str(raised.value)


def test_without_pyarrow(parquet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'rankingmatch\[shards\]'"):
        find_source(str(parquet))


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"x": [1], "label": [1]}, "no column image, but x, label"),
        ({"image": [5], "label": [1]}, "column image has values of type int64"),
        ({"image": [{"path": "x"}]}, "column image has values of type struct"),
        ({"image": [b"x"], "label": [1.5]}, "label is 1.5"),
    ],
)
def test_other_columns_of_parquet_are_errors(tmp_path: Path, columns: dict[str, Any], problem: str) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=f"x.parquet .*{problem}"):
        scan_folder(tmp_path / "x.parquet")


def test_damaged_parquet_and_large_groups_are_errors(parquet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet / "test-00000-of-00001.parquet"
    monkeypatch.setattr("rankingmatch.data.parquet_shards.MOST_ROWS", 3)
    with pytest.raises(DataError, match="groups of 4 rows"):
        scan_folder(path)
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"test-.*\.parquet is not a Parquet file") as raised:
        scan_folder(path)
    assert "\n" not in str(raised.value)
