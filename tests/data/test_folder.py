"""Folders of images in every layout; what is wrong with them is said in a line, and the rest is used."""

import os
import shutil
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from image_folders import class_folders, picture
from PIL import Image

from rankingmatch.core.errors import ConfigError, DataError
from rankingmatch.data import UNLABELED, Dataset, find_source, make_split
from rankingmatch.data import decode as decode_module
from rankingmatch.data.decode import FILES_AT_ONCE, UnreadableError, decode, open_image, read_header
from rankingmatch.runs.config import resolve


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/rankingmatch/decoded"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """labeled/, unlabeled/ (nested), val/ and test/."""
    place = tmp_path / "photos"
    class_folders(place / "labeled")
    class_folders(place / "val", each=2)
    class_folders(place / "test", each=3)
    for number in range(6):
        picture(place / "unlabeled" / ("deep/er" if number % 2 else ".") / f"{number}.png")
    return place


def load(place: Path, **settings: Any) -> Dataset:
    return find_source(str(place), **settings).load()


def labels_of(dataset: Dataset) -> list[int]:
    return sorted(dataset.train.labels.tolist())


def said(caplog: pytest.LogCaptureFixture) -> str:
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
    place, more = class_folders(tmp_path / "photos"), tmp_path / "more"
    picture(more / "a.png")
    picture(more / "b/b.png")
    dataset = load(place, unlabeled=str(more))
    assert labels_of(dataset) == [-1] * 2 + [0] * 4 + [1] * 4 + [2] * 4
    assert dataset.validation is None
    assert dataset.test is None


def test_a_table_of_labels(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "flat"
    names = ["a, b.png", 'say "c".png', "d\ne.png", "ü.png", "sub/f.png", "rest.png"]
    for name in names:
        picture(place / name)
    table = tmp_path / "labels.csv"
    rows = ['"a, b.png",cat', '"say ""c"".png",dog', '"d\ne.png",cat', "ü.png,dog", "sub/f.png,", "gone.png,dog"]
    table.write_text("\n".join(["file,label", *rows]) + "\n", encoding="utf-8-sig")
    dataset = load(place, labels_csv=str(table))
    assert dataset.classes == ("cat", "dog")
    assert labels_of(dataset) == [-1, -1, 0, 0, 1, 1]
    assert "has labels for 1 files that do not exist: gone.png" in said(caplog)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name,label\na.png,cat\n", "must have the columns file and label"),
        ("file,label\na.png,cat\na.png,dog\nb.png,dog\n", "line 3: 'a.png' has two labels, 'cat' and 'dog'"),
        ("file,label\nx.png,cat\ny.png,dog\nz.png,dog\n", "has 3 files that are not in"),
        ("file,label\na.png,\n", "has no class folders"),
        (b"file,label\n\xff\xfe,\n", "labels_csv is .*, which is not a CSV file in UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_table_is_named(content: str | bytes | None, message: str, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        picture(tmp_path / "flat" / name)
    table = tmp_path / "labels.csv"
    if content is not None:
        table.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError, match=message):
        find_source(str(tmp_path / "flat"), labels_csv=str(table))


def test_settings_follow_from_the_images_and_flags_come_first(photos: Path) -> None:
    small = resolve(str(photos), "supervised", {}).config
    assert (small.data.image_size, small.views.padding, small.views.cutout, small.views.flip) == (20, 2, 10, True)
    large = resolve(str(photos), "supervised", {"image_size": 64}).config
    assert (large.views.padding, large.network.network) == (8, "wrn-13-1")
    assert resolve(str(photos), "supervised", {"padding": 1}).config.views.padding == 1
    assert small.training.steps == 1000
    assert small.data.validation == 0


def test_a_fifth_is_held_out_when_each_class_has_ten_labels(tmp_path: Path) -> None:
    assert find_source(str(class_folders(tmp_path / "few", each=9))).preset()["validation"] == 0
    place = class_folders(tmp_path / "many", each=10)
    assert find_source(str(place)).preset()["validation"] == 6
    config = resolve(str(place), "supervised", {}).config
    split = make_split(load(place), config.data, seed=0)
    assert split.validation is not None
    assert (len(split.labeled_rows), len(split.validation)) == (24, 6)


def test_places_of_a_folder_do_not_go_with_a_name() -> None:
    with pytest.raises(ConfigError, match="unlabeled is for a folder of images"):
        find_source("digits", unlabeled="somewhere")


def test_an_unlabeled_folder_among_the_class_folders_is_no_class(tmp_path: Path) -> None:
    place = class_folders(tmp_path / "photos")
    for number in range(5):
        picture(place / "pool" / f"{number}.png")
    dataset = load(place, unlabeled=str(place / "pool"))
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


def test_other_images_of_the_same_names_sizes_and_times_are_other_images(tmp_path: Path) -> None:
    for place, shade in ((tmp_path / "one", 40), (tmp_path / "two", 200)):
        for name in ("a", "b"):
            (place / name).mkdir(parents=True)
            Image.new("RGB", (8, 8), (shade, shade, shade)).save(place / name / "0.bmp")
            os.utime(place / name / "0.bmp", (315532800, 315532800))  # as from a reproducible archive
    one, two = load(tmp_path / "one"), load(tmp_path / "two")
    assert (one.train.images.max(), two.train.images.max()) == (40, 200)


def test_images_are_decoded_once_until_a_file_changes(photos: Path, cache_of_its_own: Path) -> None:
    first = load(photos)
    (made,) = cache_of_its_own.iterdir()
    stamp = (made / "about.json").stat().st_mtime_ns
    again = load(photos)
    assert (made / "about.json").stat().st_mtime_ns == stamp
    assert again.fingerprint == first.fingerprint
    os.utime(photos / "unlabeled/0.png", ns=(1, 1))
    assert load(photos).fingerprint != first.fingerprint
    find_source(str(photos)).load(image_size=8)
    assert len(list(cache_of_its_own.iterdir())) == 3


def test_one_colour_image_late_among_grey_ones_makes_all_of_them_colour(tmp_path: Path) -> None:
    place = tmp_path / "photos"
    for number in range(900):
        path = place / f"c{number % 2}" / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number % 256).save(path)
    assert load(place).train.images.shape == (900, 4, 4, 1)
    Image.new("RGB", (4, 4), "red").save(place / "c1/0899.png")
    assert load(place).train.images.shape == (900, 4, 4, 3)


# --- every kind of image -------------------------------------------------------------------------------------

RED, SHAPE = np.array([200, 40, 20]), (8, 8, 3)


def left_red(mode: str) -> Image.Image:
    """The left half red (or grey), the right half white (or transparent)."""
    pixels = np.full((16, 16, 4), 255, np.uint8)
    pixels[:, :8, :3] = RED
    pixels[:, 8:, 3] = 0
    return Image.fromarray(pixels).convert(mode) if mode in ("RGBA", "LA") else Image.fromarray(pixels[..., :3])


@pytest.mark.parametrize("kind", ["RGB.png", "RGBA.png", "P.png", "P.gif", "CMYK.jpg", "CMYK.tif", "RGBA.webp"])
def test_colour_images_of_every_mode(kind: str, tmp_path: Path) -> None:
    mode, path = kind.split(".")[0], tmp_path / kind
    left_red(mode).convert(mode).save(path, quality=100)
    pixels = decode(str(path), SHAPE).astype(int)
    assert np.abs(pixels[:, :3] - RED).max() < 12
    assert (pixels[:, 5:] > 240).all()
    assert not read_header(str(path)).gray


@pytest.mark.parametrize("kind", ["L.png", "LA.png", "1.png", "I;16.png", "I;16.tif"])
def test_grey_images_of_every_mode(kind: str, tmp_path: Path) -> None:
    mode, path = kind.split(".")[0], tmp_path / kind.replace(";", "")
    grey = left_red(mode).convert("LA" if mode == "LA" else "L")
    if mode == "I;16":
        Image.fromarray(np.asarray(grey).astype(np.uint16) * 257).save(path)
    else:
        grey.convert(mode).save(path)
    pixels = decode(str(path), (8, 8, 1)).astype(int)
    expected = np.asarray(left_red("RGB").convert("L"))[0, 0]
    assert (pixels[:, 5:] > 240).all()
    if mode != "1":
        assert np.abs(pixels[:, :3] - expected).max() < 12
    assert read_header(str(path)).gray


def test_of_an_animation_the_first_picture_counts(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert (decode(str(tmp_path / "moving.gif"), SHAPE)[0, 0] == (255, 0, 0)).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_respected(orientation: int, tmp_path: Path) -> None:
    upright = left_red("RGB").resize((24, 16))
    turns = {
        **{2: [Image.Transpose.FLIP_LEFT_RIGHT], 3: [Image.Transpose.ROTATE_180], 4: [Image.Transpose.FLIP_TOP_BOTTOM]},
        **{5: [Image.Transpose.TRANSPOSE], 6: [Image.Transpose.ROTATE_90], 7: [Image.Transpose.TRANSVERSE]},
        8: [Image.Transpose.ROTATE_270],
    }
    stored = upright
    for turn in turns.get(orientation, []):
        stored = stored.transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "turned.jpg", exif=exif, quality=100)
    pixels = decode(str(tmp_path / "turned.jpg"), SHAPE).astype(int)
    assert np.abs(pixels[:, :3] - RED).max() < 40
    assert (pixels[:, 6:] > 200).all()
    assert read_header(str(tmp_path / "turned.jpg"))[:2] == (16, 24)


def test_a_large_photograph_read_at_a_fraction_looks_like_one_read_whole(tmp_path: Path) -> None:
    from sklearn.datasets import load_sample_images

    photo = Image.fromarray(load_sample_images().images[0])
    photo.save(tmp_path / "photo.jpg", quality=95)
    whole = np.asarray(photo.resize((32, 32), Image.Resampling.LANCZOS)).astype(int)
    assert np.abs(decode(str(tmp_path / "photo.jpg"), (32, 32, 3)) - whole).mean() < 2


# --- bad files -----------------------------------------------------------------------------------------------


def spoil(photos: Path) -> dict[str, str]:
    """A bad file of each kind among the labeled images, and what is said of it."""
    place = photos / "labeled/red"
    (place / "empty.png").touch()
    whole = (place / "labeled-red-0.png").read_bytes()
    (place / "truncated.png").write_bytes(whole[: len(whole) // 2])
    (place / "text.jpg").write_text("no picture")
    (place / "nowhere.png").symlink_to(place / "gone.png")
    Image.new("1", (20_000, 20_000)).save(place / "bomb.png")
    (place / "notes.txt").write_text("no picture, and does not say so")
    return {
        "empty.png": "is empty",
        "truncated.png": "cannot be read",
        "text.jpg": "is not an image",
        "nowhere.png": "cannot be read (No such file",
        "bomb.png": "has too many pixels",
    }


def test_bad_files_are_left_out_and_listed(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = load(photos)
    expected = spoil(photos)
    for _ in range(2):  # decoded, then from the cache
        caplog.clear()
        dataset = load(photos)
        assert np.array_equal(dataset.train.images, whole.train.images)
        assert {Path(file).name for file, _ in dataset.skipped} == set(expected)
        for file, reason in dataset.skipped:
            assert reason.startswith(expected[Path(file).name])
        assert "skipped 5 files: labeled/red/bomb.png has too many pixels" in said(caplog)
    assert "skipped 1 files that are not images by name" in find_source(str(photos)).description


def test_more_than_half_bad_stops(photos: Path, cache_of_its_own: Path) -> None:
    for number in range(34):
        (photos / "unlabeled" / f"bad{number}.png").touch()
    with pytest.raises(DataError, match=r"more than half of the 67 files in .*: unlabeled/bad0.png is empty"):
        load(photos)
    assert list(cache_of_its_own.iterdir()) == []


def test_an_unreadable_file_is_left_out(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(stream: IO[bytes], name: str, formats: tuple[str, ...]) -> Image.Image:
        if name.endswith("labeled-red-0.png"):
            raise PermissionError(13, "Permission denied")
        return open_image(stream, name, formats)

    monkeypatch.setattr(decode_module, "open_image", refuse)
    assert load(photos).skipped == (("labeled/red/labeled-red-0.png", "cannot be read (Permission denied)"),)


def test_a_file_that_goes_away_while_reading_is_left_out(photos: Path) -> None:
    found = find_source(str(photos))
    (photos / "unlabeled/0.png").unlink()
    dataset = found.load()
    assert [file for file, _ in dataset.skipped] == ["unlabeled/0.png"]


def test_a_pipe_is_not_waited_for(photos: Path) -> None:
    os.mkfifo(photos / "unlabeled/pipe.png")
    assert load(photos).skipped == ()
    with pytest.raises(UnreadableError, match="is not a file"):
        decode(str(photos / "unlabeled/pipe.png"), SHAPE)


# --- bad folders ---------------------------------------------------------------------------------------------


def test_an_empty_class_is_left_out(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    (photos / "labeled/violet").mkdir()
    assert load(photos).classes == ("blue", "green", "red")
    assert "skipped the class 'violet': it has no images" in said(caplog)


def test_loose_images_beside_class_folders_are_named(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    picture(photos / "labeled/loose.png")
    assert len(load(photos).train) == 18
    assert "skipped 1 images in" in said(caplog)
    assert "loose.png" in said(caplog)


def test_the_same_image_in_train_and_test_is_named(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copy(photos / "labeled/red/labeled-red-1.png", photos / "test/red/copy.png")
    load(photos)
    assert (
        "1 training images are also among the evaluation images: labeled/red/labeled-red-1.png = test/red/copy.png"
        in said(caplog)
    )


def test_a_circle_of_links_ends(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    (photos / "unlabeled/circle").symlink_to(photos / "unlabeled")
    assert len(load(photos).train) == 18
    assert "circle: it is a link to one of its parent folders" in said(caplog)


def test_a_link_to_another_folder_is_followed(photos: Path, tmp_path: Path) -> None:
    picture(tmp_path / "elsewhere/x.png")
    (photos / "unlabeled/link").symlink_to(tmp_path / "elsewhere")
    assert len(load(photos).train) == 19


def test_names_that_are_no_text_are_read_and_shown(photos: Path) -> None:
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
def test_a_folder_that_cannot_be_used_is_named(change: str, message: str, photos: Path) -> None:
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
    place = tmp_path / "photos"
    for number in range(3 * FILES_AT_ONCE):
        path = place / f"c{number % 2}" / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2), number % 256).save(path)
    images = load(place).train.images[:, 0, 0, 0]
    assert images.tolist() == [number % 256 for half in (0, 1) for number in range(half, 3 * FILES_AT_ONCE, 2)]
