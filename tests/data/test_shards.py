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
from rankingmatch.data import Dataset, Images, UnreadableError, find_source, images_below, labeled_files
from rankingmatch.data.folder_contents import scan_folder
from rankingmatch.data.shards import part_of_shard, shards_at


@pytest.fixture
def shards(photos: Path, tmp_path: Path) -> Path:
    return shards_of(photos, tmp_path / "shards")


def contents_of(folder: Path) -> list[bytes | None]:
    return [path.read_bytes() for path in sorted(folder.rglob("*.png"))]


@pytest.fixture
def parquet(photos: Path, tmp_path: Path) -> Path:
    """The labeled and the test images of `photos`."""
    pytest.importorskip("pyarrow")
    for part, each in (("labeled", 4), ("test", 3)):
        labels = np.repeat([0, 1, 2], each).tolist()
        write_parquet(tmp_path / f"parquet/{part}-00000-of-00001.parquet", contents_of(photos / part), labels)
    return tmp_path / "parquet"


def write_table(path: Path, **columns: Any) -> Path:
    """A Parquet file of any columns."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path, store_schema=False)
    return path


def load(place: Path, **settings: Any) -> Dataset:
    return find_source(str(place), **settings).load()


def assert_same(one: Images | None, other: Images | None) -> None:
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.images, other.images)
    np.testing.assert_array_equal(one.labels, other.labels)


def test_shards_give_the_images_labels_and_parts_of_the_same_folder(photos: Path, shards: Path) -> None:
    assert len(list(shards.iterdir())) == 3 + 2 + 2 + 2
    mine, theirs = find_source(str(shards)), find_source(str(photos))
    assert (mine.shape, mine.side, mine.preset()) == (theirs.shape, theirs.side, theirs.preset())
    assert (mine.title, mine.description) == ("shards", theirs.description)
    one, other = mine.load(), theirs.load()
    assert one.classes == other.classes
    for part in ("train", "validation", "test"):
        assert_same(getattr(one, part), getattr(other, part))


def test_parquet_files_give_the_images_labels_and_parts_of_the_same_folder(photos: Path, parquet: Path) -> None:
    mine, theirs = load(parquet), load(photos)
    assert mine.classes == theirs.classes == ("blue", "green", "red")
    assert_same(mine.train, theirs.train.take(np.arange(12)))
    assert_same(mine.test, theirs.test)
    assert next(iter(scan_folder(parquet).stored)) == "labeled-00000-of-00001.parquet/000000/0.png"
    plain = write_table(parquet / "x.parquet", img=contents_of(photos)[:3])
    found = [image for image in images_below(plain) if not isinstance(image, str)]
    assert [str(one) for one in found] == [f"{plain}/{number:06d}" for number in range(3)]
    assert [one.read() for one in found] == contents_of(photos)[:3]


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


PARQUET_LABELS: list[tuple[list[Any], list[str]]] = [
    (["b", "a", ""], ["b", "a", ""]),
    ([7, 5, -1], ["7", "5", ""]),
    ([None, 8, 9], ["", "8", "9"]),
]


def labels_in(place: Path) -> list[str]:
    """The names of the training labels; empty for none."""
    contents = scan_folder(place)
    return [contents.classes[label] if label >= 0 else "" for _, label in contents.parts["train"]]


def test_every_form_of_a_label(tmp_path: Path) -> None:
    found = [member(name, content) for name, (content, _) in LABELS.items()]
    images = [member(f"{name.removesuffix('.cls').removesuffix('.json')}.PNG") for name in LABELS]
    images[-1][0].name = "j.right.png"  # the key of WebDataset ends at the first dot
    assert labels_in(write_tar(tmp_path / "x.tar", [*images, *found])) == [label for _, label in LABELS.values()]
    pytest.importorskip("pyarrow")
    for values, names in PARQUET_LABELS:
        assert labels_in(write_parquet(tmp_path / "x.parquet", [b"x"] * 3, values)) == names


PROBLEMS: list[tuple[bytes | dict[str, Any], str]] = [
    (b"[1]", "not a JSON object"),
    (b"{", "not JSON"),
    (b'{"label": 1.5}', "label is 1.5"),
    (b'{"label": true}', "label is True"),
    (json.dumps({"label": "x" * 300}).encode(), "300 characters"),
    (b"\xff", "utf-8"),
    (b"x" * (2**20 + 1), "1,048,577 bytes"),
    (b"{}", "no labels; .* or use labels_csv"),
    ({"x": [1], "label": [1]}, "no column image, but x, label"),
    ({"image": [5], "label": [1]}, "column image has values of type int64"),
    ({"image": [{"path": "x"}]}, "column image has values of type struct"),
    ({"image": [b"x"], "label": [1.5]}, "label is 1.5"),
]


@pytest.mark.parametrize(("content", "problem"), PROBLEMS)
def test_labels_and_columns_that_cannot_be_used_are_an_error_of_one_line(
    content: bytes | dict[str, Any], problem: str, tmp_path: Path
) -> None:
    if isinstance(content, dict):
        path = write_table(tmp_path / "x.parquet", **content)
    else:
        path = write_tar(tmp_path / "x.tar", [member("a.png"), member("a.json", content)])
    with pytest.raises(DataError, match=f"{path.name}.* .*{problem}") as raised:
        scan_folder(path)
    assert "\n" not in str(raised.value)


PARTS = {
    **{"train-0.tar": "train", "labeled_00.tar": "train", "cats.tar": "train", "000.tar": "train"},
    **{"val-0.tar": "validation", "imagenet-validation-000.tar": "validation", "test12.tar": "test"},
    **{"unlabeled.tar": "unlabeled", "latest-0.tar": "train", "TEST.TAR": "test"},
}


def test_the_name_of_a_shard_says_what_it_is_for(tmp_path: Path) -> None:
    assert {name: part_of_shard(Path("test") / name) for name in PARTS} == PARTS
    with pytest.raises(DataError, match=r"train-test-0\.tar says both test and train"):
        part_of_shard(Path("train-test-0.tar"))
    (tmp_path / "shard.tar.gz").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"a shard, whose name ends in \.tar or \.par"):
        find_source(str(tmp_path / "shard.tar.gz"))


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
    write_tar(shards / "test-9.tar", [member("bare.png")])
    contents, classes = scan_folder(shards), ("blue", "green", "red")
    assert contents.notes == ("skipped 1 test images without labels: test-9.tar/bare.png",)
    assert len(contents.parts["test"]) == 9
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


def test_damaged_parquet_large_groups_and_a_missing_library_are_errors(
    parquet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet / "test-00000-of-00001.parquet"
    with monkeypatch.context() as patch:
        patch.setattr("rankingmatch.data.parquet_shards.MOST_ROWS", 3)
        with pytest.raises(DataError, match="groups of 4 rows"):
            scan_folder(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"test-.*\.parquet is not a Parquet file") as raised:
        scan_folder(path)
    assert "\n" not in str(raised.value)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'rankingmatch\[shards\]'"):
        find_source(str(parquet))


@pytest.mark.parametrize("part", ["bytes", "path"])  # each has 1.3 GB if all values are made at once
def test_one_large_value_in_many_rows_does_not_fill_the_memory(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.setattr("rankingmatch.data.parquet_shards.MOST_GROUP", 2**26)
    kinds = {"bytes": pyarrow.binary(), "path": pyarrow.string()}
    columns = {name: pyarrow.array([b"x"] * 80, kind) for name, kind in kinds.items()}
    columns[part] = pyarrow.DictionaryArray.from_arrays([0] * 80, pyarrow.array([b"x" * 2**24], kinds[part]))
    path = write_table(tmp_path / "x.parquet", image=pyarrow.StructArray.from_arrays([*columns.values()], [*columns]))
    assert path.stat().st_size < 2**21
    with gigabyte():
        first, *_, last = found = [image for image in images_below(path) if not isinstance(image, str)]
        assert len(found) == 80
        if part == "path":
            assert len(first.read() + last.read()) == 2
            assert len(str(first)) < 2**14
            return
        for one in (first, last):
            with pytest.raises(UnreadableError, match="have more than 67,108,864 bytes"):
                one.read()


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
