"""Folders and images made to take long, to fill the memory, or to train on images of another class."""

import io
import logging
import time
from pathlib import Path

import pytest
from image_folders import picture
from PIL import Image

from rankingmatch.core.errors import DataError
from rankingmatch.data import find_source
from rankingmatch.data.decode import UnreadableError, decode, view_image
from rankingmatch.data.folder_contents import images_below, scan_folder


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Four cats, six dogs, two unlabeled pictures."""
    for name, count in (("cat", 4), ("dog", 6)):
        for number in range(count):
            picture(tmp_path / f"pets/labeled/{name}/{name}{number}.png")
    for number in range(2):
        picture(tmp_path / f"pets/unlabeled/{number}.png")
    return tmp_path / "pets"


def counts(root: Path) -> list[int]:
    return scan_folder(root).counts()


def test_the_folder_itself_is_read(pets: Path) -> None:
    assert counts(pets) == [4, 6]
    assert len(scan_folder(pets).parts["train"]) == 12


LINKS = {
    "to the parent": ("labeled/cat/loop", ".."),
    "to the sibling": ("labeled/cat/more", "../dog"),
    "to the dataset": ("labeled/cat/all", "../.."),
    "to everything": ("labeled/cat/root", "/"),
    "to itself": ("labeled/cat/self", "."),
    "to the unlabeled ones": ("labeled/cat/other", "../../unlabeled"),
    "elsewhere": ("labeled/cat/elsewhere", "../../../elsewhere"),
    "through a link": ("labeled/cat/twice", "../../../to-dogs"),
    "from the unlabeled ones": ("unlabeled/labeled", "../labeled"),
    "a class that is a link to another": ("labeled/kitten", "cat"),
    "a class that is the parent": ("labeled/loop", ".."),
}


@pytest.mark.parametrize("case", LINKS)
def test_a_link_never_leads_out_of_a_class_folder(case: str, pets: Path) -> None:
    picture(pets.parent / "elsewhere/dog.png")
    (pets.parent / "to-dogs").symlink_to(pets / "labeled/dog")
    name, target = LINKS[case]
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
    assert counts(pets) == [3, 5, 6]


def test_doubled_links_do_not_take_exponential_time(pets: Path) -> None:
    chain = pets.parent / "chain"
    for level in range(28):
        (chain / str(level)).mkdir(parents=True)
        if level:
            for side in "ab":
                (chain / f"{level - 1}/{side}").symlink_to(f"../{level}")
    picture(chain / "27/last.png")
    (pets / "unlabeled/chain").symlink_to(chain / "0")
    (pets / "labeled/cat/chain").symlink_to(chain / "0")
    started = time.process_time()
    assert counts(pets) == [4, 6]
    assert len(list(images_below(chain / "0"))) == 1
    assert time.process_time() - started < 5


def test_folders_too_deep_are_skipped_with_a_note(pets: Path) -> None:
    folder = pets / "unlabeled"
    for _ in range(150):
        folder = folder / "d"
    picture(folder / "x.png")
    contents = scan_folder(pets)
    assert len(contents.parts["train"]) == 12
    assert any("more than 100 levels deep" in note for note in contents.notes)


# --- images --------------------------------------------------------------------------------------------------


def with_scans(scans: int, side: int, *, progressive: bool = True) -> bytes:
    """A JPEG whose last scan is repeated."""
    content = io.BytesIO()
    Image.effect_noise((side, side), 40).convert("RGB").save(content, "JPEG", progressive=progressive, quality=20)
    whole = content.getvalue()
    last = whole.rindex(b"\xff\xda")
    return whole[:last] + whole[last:-2] * scans + whole[-2:]


@pytest.mark.parametrize(("scans", "side", "progressive"), [(3000, 64, True), (1000, 900, True), (500, 64, False)])
def test_a_jpeg_with_many_scans_is_refused(scans: int, side: int, progressive: bool, tmp_path: Path) -> None:
    (tmp_path / "slow.jpg").write_bytes(with_scans(scans, side, progressive=progressive))
    started = time.process_time()
    for read in (lambda file: decode(file, (32, 32, 3)), lambda file: view_image(file, 32)):
        with pytest.raises(UnreadableError, match=r"is a JPEG with [\d,]+ scans, too many"):
            read(str(tmp_path / "slow.jpg"))
    assert time.process_time() - started < 5


def test_a_large_image_of_numbers_as_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slow.ppm").write_bytes(b"P3\n1500 1500\n255\n" + b"1 " * 6_750_000)
    started = time.process_time()
    with pytest.raises(UnreadableError, match="has too many numbers as text"):
        decode(str(tmp_path / "slow.ppm"), (32, 32, 3))
    assert time.process_time() - started < 5
    (tmp_path / "small.ppm").write_bytes(b"P3\n10 10\n255\n" + b"1 " * 300)
    assert decode(str(tmp_path / "small.ppm"), (32, 32, 3)).max() == 1


@pytest.mark.parametrize("comment", [b"#" + b"x" * 50_000_000 + b"\n", b"#\n" * 25_000_000])
def test_an_image_with_a_huge_comment_is_refused(comment: bytes, tmp_path: Path) -> None:
    (tmp_path / "slow.ppm").write_bytes(b"P6\n" + comment + b"8 8\n255\n" + bytes(192))
    started = time.process_time()
    with pytest.raises(UnreadableError, match="is not an image"):
        decode(str(tmp_path / "slow.ppm"), (32, 32, 3))
    assert time.process_time() - started < 5
    (tmp_path / "good.ppm").write_bytes(b"P6\n#a photograph\n8 8\n255\n" + bytes(192))
    assert decode(str(tmp_path / "good.ppm"), (8, 8, 3)).max() == 0


def test_ordinary_jpegs_are_read(tmp_path: Path) -> None:
    for name, content in {
        "a": with_scans(1, 700),
        "b": with_scans(5, 200),
        "c": with_scans(1, 90, progressive=False),
    }.items():
        (tmp_path / f"{name}.jpg").write_bytes(content)
        assert decode(str(tmp_path / f"{name}.jpg"), (32, 32, 3)).shape == (32, 32, 3)


def test_a_huge_progressive_jpeg_is_refused_before_it_is_in_memory(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.new("L", (12_000, 12_000)).save(content, "JPEG", progressive=True)
    (tmp_path / "huge.jpg").write_bytes(content.getvalue())
    with pytest.raises(UnreadableError, match="too many for a progressive JPEG"):
        decode(str(tmp_path / "huge.jpg"), (32, 32, 3))


# --- contradictions ------------------------------------------------------------------------------------------


def test_one_picture_in_two_classes_and_in_two_parts_is_mentioned(
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
        with caplog.at_level(logging.WARNING):
            find_source(str(root)).load()
        assert "1 images are in two classes: labeled/cat/both.png = labeled/dog/both.png" in caplog.text
        assert "1 test images are also validation images" in caplog.text


@pytest.mark.parametrize("label", ["None", "nan", "NULL"])
def test_a_label_that_means_nothing_is_mentioned(label: str, pets: Path) -> None:
    table = pets.parent / "labels.csv"
    table.write_text(f"file,label\nlabeled/cat/cat0.png,cat\nlabeled/dog/dog0.png,{label}\n")
    contents = scan_folder(pets, labels_csv=table)
    assert any(f"'{label}' is a class" in note for note in contents.notes)


def test_an_unreadable_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        scan_folder(tmp_path)
