"""Folders and images made to take long, to fill the memory, or to train on images of another class."""

import io
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from image_folders import picture
from PIL import Image

from rankingmatch.cli import main
from rankingmatch.data import UnreadableError, find_source, images_below
from rankingmatch.data.decode import decode, view_image
from rankingmatch.data.folder_contents import scan_folder


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Four cats, six dogs, two unlabeled images."""
    for name, count in (("labeled/cat", 4), ("labeled/dog", 6), ("unlabeled", 2)):
        for number in range(count):
            picture(tmp_path / f"pets/{name}/{number}.png")
    return tmp_path / "pets"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("labeled/cat/loop", ".."),
        ("labeled/cat/more", "../dog"),
        ("labeled/cat/all", "../.."),
        ("labeled/cat/root", "/"),
        ("labeled/cat/self", "."),
        ("labeled/cat/other", "../../unlabeled"),
        ("labeled/cat/elsewhere", "../../../elsewhere"),
        ("labeled/cat/twice", "../../../to-dogs"),
        ("unlabeled/labeled", "../labeled"),
        ("labeled/kitten", "cat"),
        ("labeled/loop", ".."),
    ],
)
def test_a_link_never_leads_out_of_a_class_folder(name: str, target: str, pets: Path) -> None:
    picture(pets.parent / "elsewhere/dog.png")
    (pets.parent / "to-dogs").symlink_to(pets / "labeled/dog")
    (pets / name).symlink_to(target)
    contents = scan_folder(pets)
    assert contents.classes == ("cat", "dog")
    assert contents.counts() == [4, 6]
    assert len(contents.parts["train"]) == 12
    assert any(Path(name).name in note for note in contents.notes)


def test_a_class_folder_elsewhere_and_links_to_files_are_read(pets: Path) -> None:
    for number in range(3):
        picture(pets.parent / f"birds/{number}.png")
    (pets / "labeled/bird").symlink_to("../../birds")
    (pets / "labeled/cat/5.png").symlink_to("../../../birds/1.png")
    assert scan_folder(pets).counts() == [3, 5, 6]


def test_each_folder_of_doubled_links_is_read_once(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = pets.parent / "chain"
    for level in range(28):
        (chain / str(level)).mkdir(parents=True)
        for side in "ab" if level else "":
            (chain / f"{level - 1}/{side}").symlink_to(f"../{level}")
    picture(chain / "27/last.png")
    (pets / "unlabeled/chain").symlink_to(chain / "0")
    (pets / "labeled/cat/chain").symlink_to(chain / "0")
    listed = Mock(wraps=os.scandir)
    monkeypatch.setattr(os, "scandir", listed)
    assert scan_folder(pets).counts() == [4, 6]
    assert len(list(images_below(chain / "0"))) == 1
    assert listed.call_count < 100


def test_folders_too_deep_are_skipped_with_a_note(pets: Path) -> None:
    picture(pets / "unlabeled" / "/".join(["d"] * 150) / "x.png")
    contents = scan_folder(pets)
    assert len(contents.parts["train"]) == 12
    assert any("more than 100 levels deep" in note for note in contents.notes)


# --- images --------------------------------------------------------------------------------------------------


def jpeg(scans: int, side: int, *, progressive: bool = True) -> bytes:
    """A JPEG whose last scan is repeated."""
    content = io.BytesIO()
    Image.effect_noise((side, side), 40).convert("RGB").save(content, "JPEG", progressive=progressive, quality=20)
    whole = content.getvalue()
    last = whole.rindex(b"\xff\xda")
    return whole[:last] + whole[last:-2] * scans + whole[-2:]


def huge_jpeg() -> bytes:
    content = io.BytesIO()
    Image.new("L", (12_000, 12_000)).save(content, "JPEG", progressive=True)
    return content.getvalue()


PIXELS = b"8 8\n255\n" + bytes(192)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (lambda: jpeg(3000, 64), "scans, too many"),
        (lambda: jpeg(1000, 900), "scans, too many"),
        (lambda: jpeg(500, 64, progressive=False), "scans, too many"),
        (huge_jpeg, "too many for a progressive JPEG"),
        (lambda: b"P3\n1500 1500\n255\n" + b"1 " * 6_750_000, "numbers as text"),
        (lambda: b"P6\n#" + b"x" * 50_000_000 + b"\n" + PIXELS, "not an image"),
        (lambda: b"P6\n" + b"#\n" * 25_000_000 + PIXELS, "not an image"),
        (lambda: jpeg(1, 700), None),
        (lambda: jpeg(5, 200), None),
        (lambda: jpeg(1, 90, progressive=False), None),
        (lambda: b"P3\n10 10\n255\n" + b"1 " * 300, None),
        (lambda: b"P6\n#a photograph\n#\n" + PIXELS, None),
    ],
)
def test_only_an_image_that_takes_long_to_read_is_refused(
    content: Callable[[], bytes], problem: str | None, tmp_path: Path
) -> None:
    path = str(tmp_path / "image")
    Path(path).write_bytes(content())
    for read in (lambda: decode(path, (32, 32, 3)), lambda: view_image(path, 32)):
        with pytest.raises(UnreadableError, match=problem) if problem else nullcontext():
            read()


def test_damaged_tiffs_are_listed_without_warnings_of_pillow(
    pets: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(pets.parent / "cache"))
    for number in range(4):
        path = pets / f"unlabeled/damaged{number}.tif"
        Image.effect_noise((40, 40), 40).save(path)
        path.write_bytes(path.read_bytes()[: 60 + number])  # cut off in the list of tags
    command = ["train", str(pets), "--steps", "1", "--batch-size", "2", "--network", "small", "--no-report", "--quiet"]
    main([*command, "--out", str(pets.parent / "run")])
    assert "skipped 4 files: unlabeled/damaged0.tif" in caplog.text
    assert "Warning" not in caplog.text  # which pytest makes an error, and so a reason


# --- contradictions ------------------------------------------------------------------------------------------


def test_one_image_in_two_classes_and_in_two_parts_is_mentioned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "pets"
    colors = iter(range(10, 250, 7))
    for part in ("labeled", "val", "test"):
        for name in ("cat", "dog"):
            picture(root / part / name / "own.png", (next(colors), 0, 0))
    picture(root / "labeled/cat/both.png", (1, 2, 3))
    picture(root / "labeled/dog/both.png", (1, 2, 3))
    (root / "test/dog/shared.png").write_bytes((root / "val/dog/own.png").read_bytes())
    for _ in range(2):  # decoded, and from the cache
        caplog.clear()
        find_source(str(root)).load()
        assert "labeled/cat/both.png = labeled/dog/both.png" in caplog.text
        assert "val/dog/own.png = test/dog/shared.png" in caplog.text


@pytest.mark.parametrize("label", ["None", "nan", "NULL"])
def test_a_label_that_means_nothing_is_mentioned(label: str, pets: Path) -> None:
    table = pets.parent / "labels.csv"
    table.write_text(f"file,label\nlabeled/cat/0.png,cat\nlabeled/dog/0.png,{label}\n")
    contents = scan_folder(pets, labels_csv=table)
    assert any(f"'{label}' is a class" in note for note in contents.notes)
