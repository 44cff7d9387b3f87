"""A folder of images through the command line."""

import json
import os
from pathlib import Path

import pytest
from image_folders import class_folders, digit_files, picture

from rankingmatch.cli import main

QUICK = ["--steps", "6", "--batch-size", "8", "--mu", "2", "--evaluate-every", "3", "--threads", "1"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trained(place: Path) -> Path:
    """A run on a folder of digits."""
    digit_files(place / "digits-files")
    main(["train", "digits-files", *QUICK, "--out", "run", "--quiet"])
    return place / "run"


def test_training_says_what_it_found_and_chose(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digit_files(place / "photos")
    main(["train", "photos", *QUICK])
    out, err = capsys.readouterr()
    assert "10 classes: 0 4, 1 4, 2 4" in err
    assert "40 labeled, 150 unlabeled, 0 validation, 50 test images, 8×8 pixels, grey" in err
    assert "--image-size 8 --network small --batch-size 8 --steps 6 --padding 1 --cutout 4" in err
    assert "--no-flip" in err
    assert "test error" in out
    config = json.loads((place / "runs/photos-all-rankingmatch-bm-0/config.json").read_text())
    assert config["dataset"] == str(place / "photos")


def test_without_anything_to_evaluate_on_only_training_is_reported(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class_folders(place / "photos")
    picture(place / "more/1.png")
    main(["train", "photos", "--unlabeled", "more", *QUICK, "--out", "run"])
    out, err = capsys.readouterr()
    assert "no validation or test images, and too few labels" in err
    assert out.startswith("trained with 12 labels")
    with pytest.raises(SystemExit):
        main(["evaluate", "run"])
    assert "has no test images" in capsys.readouterr().err


def test_held_out_images_are_announced(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class_folders(place / "photos", each=10)
    main(["train", "photos", "--method", "supervised", *QUICK])
    out, err = capsys.readouterr()
    assert "no validation images: 6 of the labeled ones are held out" in err
    assert "validation error" in out


def test_a_run_goes_on_from_elsewhere_but_not_with_other_images(
    trained: Path, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (trained / "result.json").unlink()
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    main(["train", "../digits-files", "--resume", "--out", str(trained), "--quiet"])
    (trained / "result.json").unlink()
    os.utime(next((place / "digits-files/unlabeled").iterdir()), ns=(1, 1))
    with pytest.raises(SystemExit):
        main(["train", "--resume", "--out", str(trained), "--quiet"])
    assert "the folder has changed since" in capsys.readouterr().err


def test_uneven_labels_are_named_and_can_be_balanced(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    class_folders(place / "photos", each=2)
    for number in range(20):
        picture(place / "photos/red" / f"more{number}.png")
    main(["train", "photos", "--method", "supervised", *QUICK, "--out", "uneven", "--quiet"])
    assert any("'blue' has 2, 'red' has 22; --balanced" in message for message in caplog.messages)
    caplog.clear()
    main(["train", "photos", "--method", "supervised", *QUICK, "--out", "even", "--balanced", "--quiet"])
    assert caplog.messages == []


def test_a_name_comes_before_a_folder_of_that_name(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digit_files(place / "digits")
    main(["train", "digits", *QUICK, "--out", "run"])
    assert "digits: the dataset, not the folder, which is ./digits" in capsys.readouterr().err
    main(["train", "./digits", *QUICK, "--out", "other"])
    assert "150 unlabeled" in capsys.readouterr().err
