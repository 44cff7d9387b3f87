"""Folders of images in every layout; bad files are skipped and listed, bad folders are errors."""

import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from image_folders import class_folders, picture
from PIL import Image

from rankingmatch.core.errors import ConfigError, DataError
from rankingmatch.data import UNLABELED, Dataset, DataSettings, find_source, make_split
from rankingmatch.data import decode as decode_module
from rankingmatch.data.decode import FILES_AT_ONCE, UnreadableError, decode, open_image


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/rankingmatch/decoded"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """labeled/, unlabeled/ (nested), val/ and test/."""
    folder = tmp_path / "photos"
    class_folders(folder / "labeled")
    class_folders(folder / "val", each=2)
    class_folders(folder / "test", each=3)
    for number in range(6):
        picture(folder / "unlabeled" / ("deep/er" if number % 2 else ".") / f"{number}.png")
    return folder


def load(folder: Path, **settings: Any) -> Dataset:
    return find_source(str(folder), **settings).load()


def labels_of(dataset: Dataset) -> list[int]:
    return sorted(dataset.train.labels.tolist())


def warnings_of(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(caplog.messages)


# --- layouts -------------------------------------------------------------------------------------------------


def test_labeled_unlabeled_val_and_test(photos: Path) -> None:
    dataset = load(photos)
    assert dataset.classes == ("blue", "green", "red")
    assert labels_of(dataset) == [-1] * 6 + [0] * 4 + [1] * 4 + [2] * 4
    assert dataset.validation is not None
    assert dataset.test is not None
    assert (len(dataset.validation), len(dataset.test)) == (6, 9)
    for part in (dataset.train, dataset.test):  # blue images are blue …
        known = part.labels != UNLABELED
        assert (part.images.mean((1, 2)).argmax(1)[known] == 2 - part.labels[known]).all()


@pytest.mark.parametrize("renamed", [{"labeled": "train"}, {"labeled": "train", "val": "validation"}])
def test_other_names_of_the_parts(photos: Path, renamed: dict[str, str]) -> None:
    before = load(photos)
    for old, new in renamed.items():
        (photos / old).rename(photos / new)
    after = load(photos)
    assert np.array_equal(after.train.images, before.train.images)
    assert after.validation is not None


def test_class_folders_and_another_folder_of_unlabeled_images(tmp_path: Path) -> None:
    folder, more = class_folders(tmp_path / "photos"), tmp_path / "more"
    picture(more / "a.png")
    picture(more / "b/b.png")
    dataset = load(folder, unlabeled=str(more))
    assert labels_of(dataset) == [-1] * 2 + [0] * 4 + [1] * 4 + [2] * 4
    assert dataset.validation is None
    assert dataset.test is None


def test_a_table_of_labels(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "flat"
    names = ["a, b.png", 'say "c".png', "d\ne.png", "ü.png", "sub/f.png", "rest.png"]
    for name in names:
        picture(folder / name)
    table = tmp_path / "labels.csv"
    rows = ['"a, b.png",cat', '"say ""c"".png",dog', '"d\ne.png",cat', "ü.png,dog", "sub/f.png,", "gone.png,dog"]
    table.write_text("\n".join(["file,label", *rows]) + "\n", encoding="utf-8-sig")
    dataset = load(folder, labels_csv=str(table))
    assert dataset.classes == ("cat", "dog")
    assert labels_of(dataset) == [-1, -1, 0, 0, 1, 1]
    assert "has labels for 1 files that do not exist: gone.png" in warnings_of(caplog)


def test_a_table_may_say_what_is_tested_on_and_left_out(tmp_path: Path) -> None:
    for name in "abcdef":
        picture(tmp_path / "flat" / f"{name}.png")
    table = tmp_path / "labels.csv"
    rows = ["a.png,cat,train", "b.png,dog,", "c.png,cat,test", "d.png,dog,test", "e.png,,none"]
    table.write_text("\n".join(["file,label,part", *rows]) + "\n")
    source = find_source(str(tmp_path / "flat"), labels_csv=str(table))
    dataset = source.load()
    assert labels_of(dataset) == [-1, 0, 1]  # f, a, b: e is in no part
    assert dataset.test is not None
    assert dataset.test.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("file,label,part\na.png,cat,tset\n", "line 2: part is 'tset'; it must be train, test or none"),
        ("name,label\na.png,cat\n", "must have the columns file and label"),
        ("file,label\na.png,cat\na.png,dog\nb.png,dog\n", "line 3: 'a.png' has two labels, 'cat' and 'dog'"),
        ("file,label\nx.png,cat\ny.png,dog\nz.png,dog\n", "has 3 files that are not in"),
        ("file,label\na.png,\n", "has no class folders"),
        (b"file,label\n\xff\xfe,\n", "labels_csv is .*, which is not a CSV file in UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_table_is_an_error(content: str | bytes | None, message: str, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        picture(tmp_path / "flat" / name)
    table = tmp_path / "labels.csv"
    if content is not None:
        table.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError, match=message):
        find_source(str(tmp_path / "flat"), labels_csv=str(table))


def test_settings_follow_from_the_images(photos: Path) -> None:
    source = find_source(str(photos))
    expected = {"image_size": 20, "padding": 2, "cutout": 10, "flip": True, "steps": 1000, "validation": 0}
    assert expected.items() <= source.preset().items()
    assert {"image_size": 64, "padding": 8, "network": "wrn-13-1"}.items() <= source.preset(64).items()


def test_a_fifth_is_held_out_when_each_class_has_ten_labels(tmp_path: Path) -> None:
    assert find_source(str(class_folders(tmp_path / "few", each=9))).preset()["validation"] == 0
    folder = class_folders(tmp_path / "many", each=10)
    validation = find_source(str(folder)).preset()["validation"]
    assert validation == 6
    split = make_split(load(folder), DataSettings(validation=validation), seed=0)
    assert split.validation is not None
    assert (len(split.labeled_rows), len(split.validation)) == (24, 6)


def test_options_of_a_folder_are_refused_for_a_named_dataset() -> None:
    with pytest.raises(ConfigError, match="unlabeled is for a folder of images"):
        find_source("digits", unlabeled="somewhere")


def test_an_unlabeled_folder_among_the_class_folders_is_not_a_class(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "photos")
    for number in range(5):
        picture(folder / "pool" / f"{number}.png")
    dataset = load(folder, unlabeled=str(folder / "pool"))
    assert dataset.classes == ("blue", "green", "red")
    assert labels_of(dataset) == [-1] * 5 + [0] * 4 + [1] * 4 + [2] * 4


def test_unlabeled_images_are_neither_labeled_nor_held_out_ones(photos: Path, tmp_path: Path) -> None:
    dataset = load(photos, unlabeled=str(photos))  # which has them all
    assert labels_of(dataset) == [-1] * 6 + [0] * 4 + [1] * 4 + [2] * 4
    table = tmp_path / "labels.csv"
    table.write_text("file,label\n" + "".join(f"{name}/photos-{name}-0.png,{name}\n" for name in ("red", "blue")))
    folder = class_folders(tmp_path / "plain/photos")
    dataset = load(folder, labels_csv=str(table), unlabeled=str(folder / "red"))
    assert labels_of(dataset) == [-1] * 10 + [0, 1]


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
    again = load(photos)
    assert (made / "about.json").stat().st_mtime_ns == stamp
    assert again.fingerprint == first.fingerprint
    os.utime(photos / "unlabeled/0.png", ns=(1, 1))
    assert load(photos).fingerprint != first.fingerprint
    find_source(str(photos)).load(image_size=8)
    assert len(list(own_cache.iterdir())) == 3


def test_one_color_image_late_among_grayscale_images_makes_all_of_them_color(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for number in range(900):
        path = folder / f"c{number % 2}" / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number % 256).save(path)
    assert load(folder).train.images.shape == (900, 4, 4, 1)
    Image.new("RGB", (4, 4), "red").save(folder / "c1/0899.png")
    assert load(folder).train.images.shape == (900, 4, 4, 3)


# --- bad files -----------------------------------------------------------------------------------------------


def claiming_size(png: bytes, width: int, height: int) -> bytes:
    """A PNG file with another size in its header."""
    content = bytearray(png)
    struct.pack_into(">II", content, 16, width, height)
    struct.pack_into(">I", content, 29, zlib.crc32(content[12:29]))
    return bytes(content)


def spoil(photos: Path) -> dict[str, str]:
    """Add a bad file of each kind to the labeled images; the result has the reasons for which they are skipped."""
    folder = photos / "labeled/red"
    (folder / "empty.png").touch()
    whole = (folder / "labeled-red-0.png").read_bytes()
    (folder / "truncated.png").write_bytes(whole[: len(whole) // 2])
    (folder / "text.jpg").write_text("not an image")
    (folder / "nowhere.png").symlink_to(folder / "gone.png")
    (folder / "bomb.png").write_bytes(claiming_size(whole, 20_000, 20_000))
    (folder / "notes.txt").write_text("not an image")
    return {
        "empty.png": "is empty",
        "truncated.png": "cannot be read",
        "text.jpg": "is not an image",
        "nowhere.png": "cannot be read (No such file",
        "bomb.png": "has too many pixels",
    }


def test_bad_files_are_skipped_and_listed(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = load(photos)
    expected = spoil(photos)
    for _ in range(2):  # decoded, then from the cache
        caplog.clear()
        dataset = load(photos)
        assert np.array_equal(dataset.train.images, whole.train.images)
        assert {Path(file).name for file, _ in dataset.skipped} == set(expected)
        for file, reason in dataset.skipped:
            assert reason.startswith(expected[Path(file).name])
        assert "skipped 5 files: labeled/red/bomb.png has too many pixels" in warnings_of(caplog)
    assert " (other files, by their names: 1 ." in find_source(str(photos)).description


def test_the_table_of_labels_is_not_counted_as_another_file(tmp_path: Path) -> None:
    photos = class_folders(tmp_path / "photos")
    (photos / "labels.csv").write_text("file,label\nred/photos-red-0.png,a\nblue/photos-blue-0.png,b\n")
    assert "other files" not in find_source(str(photos), labels_csv=str(photos / "labels.csv")).description


def test_more_than_half_bad_files_are_an_error(photos: Path, own_cache: Path) -> None:
    for number in range(34):
        (photos / "unlabeled" / f"bad{number}.png").touch()
    with pytest.raises(DataError, match=r"more than half of the 67 files in .*: unlabeled/bad0.png is empty"):
        load(photos)
    assert list(own_cache.iterdir()) == []


def test_an_unreadable_file_is_skipped(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(stream: IO[bytes], name: str, formats: tuple[str, ...]) -> Image.Image:
        if name.endswith("labeled-red-0.png"):
            raise PermissionError(13, "Permission denied")
        return open_image(stream, name, formats)

    monkeypatch.setattr(decode_module, "open_image", refuse)
    assert load(photos).skipped == (("labeled/red/labeled-red-0.png", "cannot be read (Permission denied)"),)


def test_a_file_deleted_after_the_scan_is_skipped(photos: Path) -> None:
    found = find_source(str(photos))
    (photos / "unlabeled/0.png").unlink()
    dataset = found.load()
    assert [file for file, _ in dataset.skipped] == ["unlabeled/0.png"]


def test_a_named_pipe_is_not_read(photos: Path) -> None:
    os.mkfifo(photos / "unlabeled/pipe.png")
    assert load(photos).skipped == ()
    with pytest.raises(UnreadableError, match="is not a file"):
        decode(str(photos / "unlabeled/pipe.png"), (8, 8, 3))


# --- bad folders ---------------------------------------------------------------------------------------------


def test_an_empty_class_is_skipped(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    (photos / "labeled/violet").mkdir()
    assert load(photos).classes == ("blue", "green", "red")
    assert "skipped the class 'violet': it has no images" in warnings_of(caplog)


def test_images_outside_of_class_folders_cause_a_warning(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    picture(photos / "labeled/loose.png")
    assert len(load(photos).train) == 18
    assert "skipped 1 images in" in warnings_of(caplog)
    assert "loose.png" in warnings_of(caplog)


def test_the_same_image_in_train_and_test_causes_a_warning(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copy(photos / "labeled/red/labeled-red-1.png", photos / "test/red/copy.png")
    load(photos)
    assert (
        "1 training images are also among the evaluation images: labeled/red/labeled-red-1.png = test/red/copy.png"
        in warnings_of(caplog)
    )


def test_a_link_to_a_parent_folder_is_not_followed(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    (photos / "unlabeled/circle").symlink_to(photos / "unlabeled")
    assert len(load(photos).train) == 18
    assert "circle: it is a link to one of its parent folders" in warnings_of(caplog)


def test_a_link_to_another_folder_is_followed(photos: Path, tmp_path: Path) -> None:
    picture(tmp_path / "elsewhere/x.png")
    (photos / "unlabeled/link").symlink_to(tmp_path / "elsewhere")
    assert len(load(photos).train) == 19


def test_undecodable_names_are_read_and_shown(photos: Path) -> None:
    strange = os.fsdecode(b"\xff\n.png")
    picture(photos / "unlabeled/x.png").rename(photos / "unlabeled" / strange)
    (photos / "unlabeled" / os.fsdecode(b"\xfe.png")).touch()
    dataset = load(photos)
    assert len(dataset.train) == 19
    assert dataset.skipped == (("unlabeled/\\udcfe.png", "is empty"),)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("one class", "has only one class, 'red'"),
        ("no class", "has no class folders with images"),
        ("unseen", "the class 'violet' of the test images has no training images"),
        ("both", "has both labeled/ and train/"),
        ("unreadable class", "no image of the class 'green' can be read"),
        ("nothing readable", "has no image that can be read; labeled/"),
    ],
)
def test_a_folder_that_cannot_be_used_is_an_error(change: str, message: str, photos: Path) -> None:
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
    else:
        for path in photos.glob("labeled/green/*" if change == "unreadable class" else "**/*.png"):
            path.write_bytes(b"")
    with pytest.raises(DataError, match=message):
        load(photos)


def test_order_is_kept_over_many_files(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for number in range(3 * FILES_AT_ONCE):
        path = folder / f"c{number % 2}" / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2), number % 256).save(path)
    images = load(folder).train.images[:, 0, 0, 0]
    assert images.tolist() == [number % 256 for half in (0, 1) for number in range(half, 3 * FILES_AT_ONCE, 2)]
