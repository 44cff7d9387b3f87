"""Shards hold what folders hold, and are read as folders are."""

import json
import logging
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_folders import class_folders, picture
from shard_files import member, samples, shards_of, write_tar

from rankingmatch.core.errors import ConfigError, DataError
from rankingmatch.data import Dataset, DataSettings, UnreadableError, find_source, make_split
from rankingmatch.data.folder_contents import images_below, labeled_files, scan_folder
from rankingmatch.data.shards import part_of_shard, shards_at


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/rankingmatch/decoded"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """labeled/, unlabeled/, val/ and test/."""
    folder = tmp_path / "photos"
    class_folders(folder / "labeled")
    class_folders(folder / "val", each=2)
    class_folders(folder / "test", each=3)
    for number in range(6):
        picture(folder / f"unlabeled/{number}.png")
    return folder


@pytest.fixture
def shards(photos: Path, tmp_path: Path) -> Path:
    return shards_of(photos, tmp_path / "shards")


def picture_bytes(folder: Path, name: str = "one.png") -> bytes:
    return picture(folder / "made" / name).read_bytes()


def load(place: Path, **settings: Any) -> Dataset:
    return find_source(str(place), **settings).load()


def assert_same_images(mine: Dataset, theirs: Dataset) -> None:
    assert mine.classes == theirs.classes
    for part in ("train", "validation", "test"):
        one, other = getattr(mine, part), getattr(theirs, part)
        np.testing.assert_array_equal(one.images, other.images)
        np.testing.assert_array_equal(one.labels, other.labels)


# --- what they hold --------------------------------------------------------------------------------------------


def test_shards_give_the_images_labels_and_parts_of_the_same_folder(photos: Path, shards: Path) -> None:
    assert len(list(shards.iterdir())) == 3 + 2 + 2 + 2
    mine, theirs = find_source(str(shards)), find_source(str(photos))
    assert_same_images(mine.load(), theirs.load())
    assert (mine.shape, mine.side, mine.preset()) == (theirs.shape, theirs.side, theirs.preset())
    assert mine.description == theirs.description
    assert mine.title == "shards"


def test_the_split_is_that_of_the_folder(photos: Path, shards: Path) -> None:
    settings = DataSettings(labels=6)
    mine, theirs = (make_split(load(place), settings, 3) for place in (shards, photos))
    np.testing.assert_array_equal(mine.labels, theirs.labels)
    np.testing.assert_array_equal(mine.unlabeled_rows, theirs.unlabeled_rows)


def test_a_single_shard(photos: Path, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "all.tar", samples(photos / "labeled"))
    dataset = load(path)
    np.testing.assert_array_equal(dataset.train.images, load(photos / "labeled").train.images)
    assert next(iter(scan_folder(path).stored)) == "0000.png"


def test_labels_from_a_table(photos: Path, shards: Path, tmp_path: Path) -> None:
    files = [file for file, _ in scan_folder(shards).parts["train"]]
    assert files[0] == "labeled-0.tar/0000.png"
    table = tmp_path / "labels.csv"
    rows = [f"{file},{'odd' if number % 2 else 'even'}" for number, file in enumerate(files[:10])]
    table.write_text("\n".join(["file,label", *rows]))
    for name in ("val", "test"):
        for shard in shards.glob(f"{name}-*"):
            shard.unlink()
    dataset = load(shards, labels_csv=str(table))
    assert dataset.classes == ("even", "odd")
    assert dataset.train.labels.tolist() == [0, 1] * 5 + [-1] * 8


def test_unlabeled_shards_beside_a_folder_and_beside_shards(photos: Path, tmp_path: Path) -> None:
    more = write_tar(tmp_path / "more/train-0.tar", samples(photos / "test"))
    expected = load(photos).train.labels.tolist() + [-1] * 9
    assert load(photos, unlabeled=str(more)).train.labels.tolist() == expected
    one = write_tar(tmp_path / "one.tar", samples(photos / "labeled"))
    assert load(one, unlabeled=str(more.parent)).train.labels.tolist().count(-1) == 9
    assert load(one, unlabeled=str(photos / "unlabeled")).train.labels.tolist().count(-1) == 6


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


def test_every_form_of_a_label(tmp_path: Path) -> None:
    image = picture_bytes(tmp_path)
    found = [member(name, content) for name, (content, _) in LABELS.items()]
    images = [member(f"{name.removesuffix('.cls').removesuffix('.json')}.PNG", image) for name in LABELS]
    images[-1][0].name = "j.right.png"  # the key of WebDataset ends at the first dot
    contents = scan_folder(write_tar(tmp_path / "x.tar", [*images, *found]))
    names = [contents.classes[label] if label >= 0 else "" for _, label in contents.parts["train"]]
    assert names == [label for _, label in LABELS.values()]


PARTS = {
    **{"train-0.tar": "train", "labeled_00.tar": "train", "cats.tar": "train", "000.tar": "train"},
    **{"val-0.tar": "validation", "imagenet-validation-000.tar": "validation", "test12.tar": "test"},
    **{"unlabeled.tar": "unlabeled", "latest-0.tar": "train", "TEST.TAR": "test"},
}


@pytest.mark.parametrize("name", PARTS)
def test_the_name_of_a_shard_says_what_it_is_for(name: str) -> None:
    assert part_of_shard(Path("test") / name) == PARTS[name]


def test_a_name_that_says_two_things_is_an_error() -> None:
    with pytest.raises(DataError, match=r"train-test-0\.tar says both test and train; rename it"):
        part_of_shard(Path("train-test-0.tar"))


def test_a_folder_with_images_or_folders_is_not_one_of_shards(shards: Path, tmp_path: Path) -> None:
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
    with pytest.raises(DataError, match="was not trained on the class 'red', only on blue, green"):
        labeled_files(shards, classes[:2])
    with pytest.raises(DataError, match="has no images with labels"):
        labeled_files(shards / "unlabeled-0.tar", classes)


# --- changes ----------------------------------------------------------------------------------------------------


def test_the_cache_is_used_until_a_shard_changes(shards: Path, own_cache: Path) -> None:
    first = load(shards).fingerprint
    assert load(shards).fingerprint == first
    assert len(list(own_cache.iterdir())) == 1
    path = shards / "labeled-0.tar"
    os.utime(path, ns=(0, 0))
    assert load(shards).fingerprint != first
    assert len(list(own_cache.iterdir())) == 2


def test_a_shard_that_changes_while_it_is_read_gives_no_wrong_pixels(shards: Path) -> None:
    image = next(images_below(shards))
    assert not isinstance(image, str)
    assert image.read().startswith(b"\x89PNG")
    os.utime(shards / "labeled-0.tar", ns=(0, 0))
    with pytest.raises(UnreadableError, match="the shard has changed"):
        image.read()


# --- what is wrong ------------------------------------------------------------------------------------------------


def test_without_labels(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", [member("a.png", picture_bytes(tmp_path))])
    with pytest.raises(DataError, match=r"x\.tar have no labels; add KEY\.cls or KEY\.json .* or use labels_csv"):
        scan_folder(path)


def test_evaluated_images_without_labels_are_left_out(photos: Path, shards: Path) -> None:
    write_tar(shards / "test-9.tar", [member("bare.png", picture_bytes(photos))])
    contents = scan_folder(shards)
    assert contents.notes == ("skipped 1 test images without labels: test-9.tar/bare.png",)
    assert len(contents.parts["test"]) == 9


def test_files_that_are_not_shards(tmp_path: Path) -> None:
    path = tmp_path / "shard.tar.gz"
    path.write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"is a file; give .* or a shard, whose name ends in \.tar or \.par"):
        find_source(str(path))


def test_damaged_images_are_skipped_and_listed(photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    members = samples(photos / "labeled")
    link = member("9.png", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    bad = [
        *[member("1x.png", b"damaged"), member("2x.png"), link, member("../../3x.png", members[0][1])],
        *[member("/4x.png", members[0][1]), member("5x.png", type=tarfile.FIFOTYPE)],
        *[member(".hidden.png", b"x"), member("__/.x/y.png", b"x"), member("folder.png", type=tarfile.DIRTYPE)],
    ]
    path = write_tar(tmp_path / "x.tar", [*members, *bad])
    with caplog.at_level(logging.WARNING):
        dataset = load(path)
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


def test_json_that_is_no_label_is_an_error_of_one_line(tmp_path: Path) -> None:
    image = picture_bytes(tmp_path)
    for content, reason in (
        (b"[1]", "it is not a JSON object"),
        (b"{", "it is not JSON"),
        (json.dumps({"label": 1.5}).encode(), "the label is 1.5; it must be a string or a whole number"),
        (json.dumps({"label": True}).encode(), "the label is True; it must be"),
        (json.dumps({"label": "x" * 300}).encode(), "the label has 300 characters, more than 255"),
        (b"\xff", "'utf-8' codec"),
    ):
        path = write_tar(tmp_path / "x.tar", [member("a.png", image), member("a.json", content)])
        with pytest.raises(DataError) as raised:
            scan_folder(path)
        assert f"{path}/a.json cannot be used: {reason}" in str(raised.value)
        assert "\n" not in str(raised.value)
