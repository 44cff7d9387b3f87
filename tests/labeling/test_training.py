"""Labels reach the training: which images of a journal are trained on, tested on, and left out."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from image_folders import digit_files
from labeling_server import Page, colored_images

from rankingmatch.data.folder_contents import FolderContents, scan_folder

HEADER = "file,label,part,time,origin\n"


def scan(folder: Path, rows: str, count: int = 8) -> FolderContents:
    colored_images(folder, count)
    (folder / "labels.csv").write_text(HEADER + rows)
    return scan_folder(folder, labels_csv=folder / "labels.csv")


def test_the_parts_of_a_journal_whose_last_row_was_cut_off(tmp_path: Path) -> None:
    contents = scan(
        tmp_path,
        "000.png,cat,train,1,hand\n001.png,dog,train,2,accepted\n002.png,dog,test,3,audit\n003.png,,none,4,hand\n"
        "004.png,,,5,skip\n005.png,cat,train,6,hand\n005.png,,,7,undo\n006.png,dog,train,8,hand\n006.png,cat,train,9,hand\n"
        "007.png,do",
    )
    assert contents.classes == ("cat", "dog")
    labels = [("000.png", 0), ("001.png", 1), ("004.png", -1), ("005.png", -1), ("006.png", 0), ("007.png", -1)]
    assert contents.parts == {"train": labels, "test": [("002.png", 1)]}


def test_classes_that_were_renamed_and_merged(tmp_path: Path) -> None:
    contents = scan(
        tmp_path,
        ",cat,class:,1,hand\n000.png,cat,train,2,hand\n001.png,dog,train,3,hand\n002.png,wolf,train,4,hand\n"
        ",kitten,class:cat,5,rename\n,dog,class:wolf,6,rename\n,unused,class:,7,hand\n",
    )
    assert contents.classes == ("dog", "kitten")
    assert [label for _, label in contents.parts["train"][:3]] == [1, 0, 0]


def test_test_images_of_a_class_without_training_images_are_left_out_with_a_note(tmp_path: Path) -> None:
    contents = scan(tmp_path, "000.png,cat,train,1,hand\n001.png,dog,train,2,hand\n002.png,owl,test,3,audit\n")
    assert "test" not in contents.parts
    assert "002.png" not in dict(contents.parts["train"])
    assert any("002.png" in note for note in contents.notes)


@pytest.fixture
def digits(tmp_path: Path, open_page: Callable[..., Page]) -> Page:
    return open_page(digit_files(tmp_path / "digits", unlabeled=60))


def wait_for_the_end(page: Page, seconds: float = 100) -> dict[str, object]:
    end = time.monotonic() + seconds
    while page.state["training"]["state"] == "running" and time.monotonic() < end:
        time.sleep(0.2)
    return dict(page.state["training"])


@pytest.mark.slow
def test_training_from_the_page_ends_with_a_report(digits: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankingmatch.labeling.processes.MORE", ["--steps", "4", "--threads", "1"])
    for number in [number for number in digits.session.checks if digits.session.mark(number) is None][:3]:
        digits.label(number, number % 10)
    digits.post("/train")
    assert "already running" in digits.post("/train", 400)["error"]
    state = wait_for_the_end(digits)
    assert (state["state"], state["step"], state["steps"]) == ("done", 4, 4), state
    assert "report" in digits.client.get(str(state["report"])).text.lower()


@pytest.mark.slow
def test_a_training_that_fails_or_is_stopped_says_so(digits: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankingmatch.labeling.processes.MORE", ["--learning-rate", "-1"])
    digits.post("/train")
    state = wait_for_the_end(digits)
    assert state["state"] == "failed"
    assert str(state["message"]).startswith("--learning-rate is -1.0")
    monkeypatch.setattr("rankingmatch.labeling.processes.MORE", ["--threads", "1", "--checkpoint-steps", "1"])
    digits.post("/train")
    end = time.monotonic() + 100
    while not digits.state["training"]["step"] and time.monotonic() < end:
        time.sleep(0.2)
    digits.post("/train/stop")
    state = wait_for_the_end(digits)
    assert state["state"] == "failed"
    assert str(state["message"]).startswith("stopped; to resume: rankingmatch train --resume --out ")
