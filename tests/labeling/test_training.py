"""Labels reach the training: which images of a journal are trained on, tested on, and left out."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from image_folders import digit_files
from labeling_server import Page, colored_images

from rankingmatch.data.folder_contents import scan_folder


def test_the_parts_of_a_journal_with_renamed_and_merged_classes_whose_last_row_was_cut_off(tmp_path: Path) -> None:
    rows = (
        ",cat,class:,0,hand\n000.png,cat,train,1,hand\n001.png,wolf,train,2,accepted\n002.png,dog,test,3,audit\n"
        "003.png,,none,4,hand\n004.png,,,5,skip\n005.png,cat,train,6,hand\n005.png,,,7,undo\n006.png,dog,train,8,hand\n"
        "006.png,cat,train,9,hand\n,kitten,class:cat,10,rename\n,dog,class:wolf,11,rename\n,unused,class:,12,hand\n"
        "008.png,owl,test,13,audit\n007.png,do"
    )
    colored_images(tmp_path, 9)
    (tmp_path / "labels.csv").write_text(f"file,label,part,time,origin\n{rows}")
    contents = scan_folder(tmp_path, labels_csv=tmp_path / "labels.csv")
    assert contents.classes == ("dog", "kitten")
    labels = [("000.png", 1), ("001.png", 0), ("004.png", -1), ("005.png", -1), ("006.png", 1), ("007.png", -1)]
    assert contents.parts == {"train": labels, "test": [("002.png", 0)]}
    assert any("008.png" in note for note in contents.notes)  # a test image of a class without training images


@pytest.fixture
def digits(tmp_path: Path, open_page: Callable[..., Page]) -> Page:
    return open_page(digit_files(tmp_path / "digits", unlabeled=60))


@pytest.mark.slow
def test_a_training_from_the_page_fails_is_stopped_or_ends_with_a_report(
    digits: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*more: str, until: Callable[[Any], bool] = lambda shown: shown["state"] != "running") -> Any:
        """What the page shows of a training when it has ended, or earlier."""
        monkeypatch.setattr("rankingmatch.labeling.processes.MORE", [*more, "--threads", "1"])
        digits.post("/train")
        return wait_for(until)

    def wait_for(condition: Callable[[Any], bool]) -> Any:
        end = time.monotonic() + 100
        while not condition(shown := digits.state["training"]) and time.monotonic() < end:
            time.sleep(0.2)
        return shown

    state = train("--learning-rate", "-1")
    assert (state["state"], state["message"].startswith("--learning-rate is -1.0")) == ("failed", True), state
    train("--checkpoint-steps", "1", until=lambda shown: shown["step"])
    assert "already running" in digits.post("/train", 400)["error"]
    digits.post("/train/stop")
    state = wait_for(lambda shown: shown["state"] != "running")
    assert state["state"] == "failed"
    assert state["message"].startswith("stopped; to resume: rankingmatch train --resume --out ")
    for number in [number for number in digits.session.checks if digits.session.mark(number) is None][:3]:
        digits.label(number, number % 10)
    state = train("--steps", "4")
    assert (state["state"], state["step"], state["steps"]) == ("done", 4, 4), state
    assert "report" in digits.client.get(state["report"]).text.lower()
