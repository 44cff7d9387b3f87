"""Labels reach the training: which images of a journal are trained on, tested on, and left out."""

import errno
import os
import time
from pathlib import Path

import pytest
from image_folders import digit_files
from labeling_server import Page, colored_pictures, open_page

from rankingmatch.core.errors import DataError
from rankingmatch.data.folder_contents import FolderContents, scan_folder

HEADER = "file,label,part,time,origin\n"


def scan(folder: Path, rows: str, count: int = 8) -> FolderContents:
    colored_pictures(folder, count)
    (folder / "labels.csv").write_text(HEADER + rows)
    return scan_folder(folder, labels_csv=folder / "labels.csv")


def test_the_parts_of_a_journal(tmp_path: Path) -> None:
    contents = scan(
        tmp_path,
        "000.png,cat,train,1,hand\n001.png,dog,train,2,accepted\n002.png,dog,test,3,audit\n003.png,,none,4,hand\n"
        "004.png,,,5,skip\n005.png,cat,train,6,hand\n005.png,,,7,undo\n006.png,dog,train,8,hand\n006.png,cat,train,9,hand\n",
    )
    assert contents.classes == ("cat", "dog")
    assert contents.parts["train"] == [
        ("000.png", 0),
        ("001.png", 1),
        ("004.png", -1),
        ("005.png", -1),
        ("006.png", 0),
        ("007.png", -1),
    ]
    assert contents.parts["test"] == [("002.png", 1)]


def test_classes_that_were_renamed_and_merged(tmp_path: Path) -> None:
    contents = scan(
        tmp_path,
        ",cat,class:,1,hand\n000.png,cat,train,2,hand\n001.png,dog,train,3,hand\n002.png,wolf,train,4,hand\n"
        ",kitten,class:cat,5,rename\n,dog,class:wolf,6,rename\n,unused,class:,7,hand\n",
    )
    assert contents.classes == ("dog", "kitten")
    assert [label for _, label in contents.parts["train"][:3]] == [1, 0, 0]


def test_a_torn_last_row_is_ignored(tmp_path: Path) -> None:
    contents = scan(tmp_path, "000.png,cat,train,1,hand\n001.png,dog,train,2,hand\n002.png,ca")
    assert contents.counts() == [1, 1]


def test_test_images_of_a_class_without_training_images_are_left_out_with_a_note(tmp_path: Path) -> None:
    contents = scan(tmp_path, "000.png,cat,train,1,hand\n001.png,dog,train,2,hand\n002.png,owl,test,3,audit\n")
    assert "test" not in contents.parts
    assert "002.png" not in dict(contents.parts["train"])
    assert any("skipped 1 test images of classes without training images: 002.png" in note for note in contents.notes)


def test_a_journal_of_another_folder_is_an_error(tmp_path: Path) -> None:
    rows = "".join(f"elsewhere/{number}.png,cat,train,{number},hand\n" for number in range(9))
    with pytest.raises(DataError, match="has 9 files that are not in"):
        scan(tmp_path, rows)


def test_a_full_disk_is_a_sentence_and_the_page_can_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = open_page(colored_pictures(tmp_path / "photos", 6), classes=("red", "green"))
    page.label(0, 0)
    before = page.state

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        error = page.label(1, 1, status=507)["error"]
    assert error.startswith("The disk is full: nothing was saved to ")
    state = page.state
    assert state["problem"] is not None
    assert {**state, "version": 0, "problem": None} == {**before, "version": 0}
    assert page.label(1, 1)["state"]["problem"] is None
    assert page.state["labeled"] == 2
    page.session.journal.close()


def wait_for_the_end(page: Page, seconds: float = 100) -> dict[str, object]:
    end = time.monotonic() + seconds
    while page.state["training"]["state"] == "running" and time.monotonic() < end:
        time.sleep(0.2)
    state: dict[str, object] = page.state["training"]
    return state


@pytest.mark.slow
def test_training_from_the_page_ends_with_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankingmatch.labeling.training.MORE", ["--steps", "4", "--threads", "1"])
    page = open_page(digit_files(tmp_path / "digits", unlabeled=60))
    audited = [number for number in page.session.checks if page.session.mark(number) is None][:3]
    for number in audited:
        page.label(number, number % 10)
    page.post("/train")
    assert "already running" in page.post("/train", 400)["error"]
    state = wait_for_the_end(page)
    assert (state["state"], state["step"], state["steps"]) == ("done", 4, 4), state
    assert "report" in page.client.get(str(state["report"])).text.lower()
    page.session.journal.close()


@pytest.mark.slow
def test_a_training_that_fails_or_is_stopped_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = open_page(digit_files(tmp_path / "digits", unlabeled=60))
    monkeypatch.setattr("rankingmatch.labeling.training.MORE", ["--learning-rate", "-1"])
    page.post("/train")
    state = wait_for_the_end(page)
    assert state["state"] == "failed"
    assert str(state["message"]).startswith("--learning-rate is -1.0")
    monkeypatch.setattr("rankingmatch.labeling.training.MORE", ["--threads", "1", "--checkpoint-steps", "1"])
    page.post("/train")
    end = time.monotonic() + 100
    while not page.state["training"]["step"] and time.monotonic() < end:
        time.sleep(0.2)
    page.post("/train/stop")
    state = wait_for_the_end(page)
    assert state["state"] == "failed"
    assert str(state["message"]).startswith("stopped; to resume: rankingmatch train --resume --out ")
    page.session.journal.close()
