"""Folders of images in every layout; bad files are skipped and listed, bad folders are errors."""

import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_folders import class_folders, picture
from PIL import Image

from rankingmatch.core.errors import DataError
from rankingmatch.data import UNLABELED, Dataset, UnreadableError, find_source
from rankingmatch.data.decode import FILES_AT_ONCE, decode


def load(folder: Path, **settings: Any) -> Dataset:
    return find_source(str(folder), **settings).load()


def labels_of(dataset: Dataset) -> list[int]:
    return sorted(dataset.train.labels.tolist())


def table_of(place: Path, *rows: str, first: str = "file,label") -> str:
    place.write_text("\n".join([first, *rows]) + "\n", encoding="utf-8-sig")
    return str(place)


# --- layouts -------------------------------------------------------------------------------------------------

ALL = [-1] * 6 + [0] * 4 + [1] * 4 + [2] * 4  # the labels of training images in `photos`


@pytest.mark.parametrize("renamed", [{}, {"labeled": "train"}, {"labeled": "train", "val": "validation"}])
def test_labeled_unlabeled_val_and_test(photos: Path, renamed: dict[str, str]) -> None:
    for old, new in renamed.items():
        (photos / old).rename(photos / new)
    dataset = load(photos)
    assert dataset.classes == ("blue", "green", "red")
    assert labels_of(dataset) == ALL
    assert dataset.validation is not None
    assert dataset.test is not None
    assert (len(dataset.validation), len(dataset.test)) == (6, 9)
    for part in (dataset.train, dataset.test):  # blue images are blue …
        known = part.labels != UNLABELED
        assert (part.images.mean((1, 2)).argmax(1)[known] == 2 - part.labels[known]).all()


def test_class_folders_and_another_folder_of_unlabeled_images(tmp_path: Path) -> None:
    folder, more = class_folders(tmp_path / "photos"), tmp_path / "more"
    picture(more / "a.png")
    picture(more / "b/b.png")
    dataset = load(folder, unlabeled=str(more))
    assert labels_of(dataset) == ALL[4:]
    assert dataset.validation is None
    assert dataset.test is None
    more.rename(folder / "pool")  # among the class folders, it is no class
    assert labels_of(load(folder, unlabeled=str(folder / "pool"))) == ALL[4:]


def test_unlabeled_images_are_neither_labeled_nor_held_out_ones(photos: Path, tmp_path: Path) -> None:
    assert labels_of(load(photos, unlabeled=str(photos))) == ALL  # which has them all
    table = table_of(tmp_path / "t.csv", "red/photos-red-0.png,red", "blue/photos-blue-0.png,blue")
    folder = class_folders(tmp_path / "plain/photos")
    assert labels_of(load(folder, labels_csv=table, unlabeled=str(folder / "red"))) == [-1] * 10 + [0, 1]


def test_a_table_of_labels_may_say_what_is_tested_on_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ["a, b.png", 'say "c".png', "d\ne.png", "ü.png", "sub/f.png", "rest.png", "none.png"]:
        picture(tmp_path / "flat" / name)
    rows = ['"a, b.png",cat,train', '"say ""c"".png",dog,', '"d\ne.png",cat,test', "ü.png,dog,test"]
    rows += ["sub/f.png,,", "none.png,,none", "gone.png,dog,"]
    table = table_of(tmp_path / "flat/labels.csv", *rows, first="file,label,part")
    source = find_source(str(tmp_path / "flat"), labels_csv=table)
    dataset = source.load()
    assert dataset.classes == ("cat", "dog")
    assert labels_of(dataset) == [-1, -1, 0, 1]
    assert dataset.test is not None
    assert dataset.test.labels.tolist() == [0, 1]
    assert "1 files that do not exist: gone.png" in caplog.text
    assert "other files" not in source.description


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"file,label,part\na.png,cat,tset\n", "line 2: part is 'tset'"),
        (b"name,label\na.png,cat\n", "columns file and label"),
        (b"file,label\na.png,cat\na.png,dog\nb.png,dog\n", "line 3: 'a.png' has two labels, 'cat' and 'dog'"),
        (b"file,label\nx.png,cat\ny.png,dog\nz.png,dog\n", "has 3 files that are not in"),
        (b"file,label\na.png,\n", "has no class folders"),
        (b"file,label\n\xff\xfe,\n", "labels_csv is"),
        (None, "labels_csv is .*No such file"),
    ],
)
def test_a_bad_table_is_an_error(content: bytes | None, problem: str, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        picture(tmp_path / "flat" / name)
    table = tmp_path / "labels.csv"
    if content is not None:
        table.write_bytes(content)
    with pytest.raises(DataError, match=problem):
        find_source(str(tmp_path / "flat"), labels_csv=str(table))


# --- the cache -----------------------------------------------------------------------------------------------


def test_different_images_with_equal_names_sizes_and_times_are_not_confused(tmp_path: Path) -> None:
    for folder, shade in ((tmp_path / "one", 40), (tmp_path / "two", 200)):
        for name in ("a", "b"):
            (folder / name).mkdir(parents=True)
            Image.new("RGB", (8, 8), (shade, shade, shade)).save(folder / name / "0.bmp")
            os.utime(folder / name / "0.bmp", (315532800, 315532800))  # as from a reproducible archive
    one, two = load(tmp_path / "one"), load(tmp_path / "two")
    assert (one.train.images.max(), two.train.images.max()) == (40, 200)


def test_images_are_decoded_once_until_a_file_changes(photos: Path, own_cache: Path) -> None:
    first = load(photos)
    (made,) = own_cache.iterdir()
    stamp = (made / "about.json").stat().st_mtime_ns
    assert load(photos).fingerprint == first.fingerprint
    assert (made / "about.json").stat().st_mtime_ns == stamp
    os.utime(photos / "unlabeled/0.png", ns=(1, 1))
    assert load(photos).fingerprint != first.fingerprint
    find_source(str(photos)).load(image_size=8)
    assert len(list(own_cache.iterdir())) == 3


def test_order_is_kept_over_many_files_and_a_late_color_image_makes_all_of_them_color(tmp_path: Path) -> None:
    folder, count = tmp_path / "photos", 900
    for number in range(count):
        (folder / f"c{number % 2}").mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number % 256).save(folder / f"c{number % 2}/{number:04d}.png")
    images = load(folder).train.images
    assert images.shape == (count, 4, 4, 1)
    assert count > 3 * FILES_AT_ONCE
    assert images[:, 0, 0, 0].tolist() == [number % 256 for half in (0, 1) for number in range(half, count, 2)]
    Image.new("RGB", (4, 4), "red").save(folder / "c1/0899.png")
    assert load(folder).train.images.shape == (count, 4, 4, 3)


# --- bad files -----------------------------------------------------------------------------------------------


def claiming_size(png: bytes, width: int, height: int) -> bytes:
    """A PNG file with another size in its header."""
    content = bytearray(png)
    struct.pack_into(">II", content, 16, width, height)
    struct.pack_into(">I", content, 29, zlib.crc32(content[12:29]))
    return bytes(content)


def test_bad_files_are_skipped_and_listed(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    good, folder = load(photos), photos / "labeled/red"
    whole = (folder / "labeled-red-0.png").read_bytes()
    bad = {
        "empty.png": (b"", "is empty"),
        "truncated.png": (whole[: len(whole) // 2], "cannot be read"),
        "text.jpg": (b"not an image", "is not an image"),
        "bomb.png": (claiming_size(whole, 20_000, 20_000), "has too many pixels"),
        os.fsdecode(b"\xfe\n.png"): (b"", "is empty"),
    }
    for name, (content, _) in bad.items():
        (folder / name).write_bytes(content)
    (folder / "nowhere.png").symlink_to(folder / "gone.png")
    for loop in (folder / "loop.png", photos / "labeled/loop", photos / "unlabeled/loop"):
        loop.symlink_to(loop.name)
    (folder / "notes.txt").write_text("not an image")
    os.mkfifo(folder / "pipe.png")
    for _ in range(2):  # decoded, then from the cache
        caplog.clear()
        dataset = load(photos)
        assert np.array_equal(dataset.train.images, good.train.images)
        reasons = {Path(file).name: reason for file, reason in dataset.skipped}
        expected = {name.replace("\udcfe\n", r"\udcfe\n"): why for name, (_, why) in bad.items()}
        assert set(reasons) == {*expected, "nowhere.png", "loop.png", "loop"}
        assert all(reasons[name].startswith(why) for name, why in expected.items())
        assert "skipped 8 files: labeled/red/bomb.png has too many pixels" in caplog.text
    assert " (other files, by their names: 1 ." in find_source(str(photos)).description
    with pytest.raises(UnreadableError, match="is not a file"):
        decode(str(folder / "pipe.png"), (8, 8, 3))


# --- bad folders ---------------------------------------------------------------------------------------------


def test_what_looks_wrong_is_a_warning(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    (photos / "labeled/violet").mkdir()
    picture(photos / "labeled/loose.png")
    shutil.copy(photos / "labeled/red/labeled-red-1.png", photos / "test/red/copy.png")
    (photos / "unlabeled/circle").symlink_to(photos / "unlabeled")
    dataset = load(photos)
    assert dataset.classes == ("blue", "green", "red")
    assert len(dataset.train) == 18
    for warning in ("'violet': it has no images", "loose.png", "labeled-red-1.png = test/red/copy.png", "circle: "):
        assert warning in caplog.text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("one class", "has only one class, 'red'"),
        ("no class", "has no class folders with images"),
        ("unseen", "the class 'violet' of the test images"),
        ("both", "has both labeled/ and train/"),
        ("labeled/green/*", "the class 'green' can be read"),
        ("**/*.png", "has no image that can be read; labeled/"),
        ("more", r"half of the 67 files in .*: unlabeled/bad0.png is empty"),
    ],
)
def test_a_folder_that_cannot_be_used_is_an_error(change: str, problem: str, photos: Path, own_cache: Path) -> None:
    if change == "one class":
        for part in ("labeled", "val", "test"):
            for name in ("green", "blue"):
                shutil.rmtree(photos / part / name)
    elif change == "no class":
        shutil.rmtree(photos / "labeled")
    elif change == "unseen":
        picture(photos / "test/violet/1.png")
    elif change == "both":
        class_folders(photos / "train")
    elif change == "more":
        for number in range(34):
            (photos / "unlabeled" / f"bad{number}.png").touch()
    else:
        for path in photos.glob(change):
            path.write_bytes(b"")
    with pytest.raises(DataError, match=problem):
        load(photos)
    assert list(own_cache.glob("*")) == []
