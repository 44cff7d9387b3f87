"""A folder of images through the command line."""

import csv
import io
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from image_folders import class_folders, digit_files, picture

from rankingmatch.cli import main
from rankingmatch.cli.printing import describe_plan
from rankingmatch.networks import onnx
from rankingmatch.runs.config import resolve

QUICK = ["--steps", "6", "--batch-size", "8", "--mu", "2", "--evaluate-every", "3", "--threads", "1"]
SMALL = [*QUICK, "--network", "wrn-10-1"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of digits, a run on it, and its cache."""
    place = tmp_path_factory.mktemp("trained")
    digit_files(place / "digits-files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        patch.chdir(place)
        main(["train", "digits-files", *QUICK, "--out", "run", "--quiet"])
    return place


@pytest.fixture
def trained(trained_once: Path, place: Path) -> Path:
    """A run on a folder of digits, for this test alone."""
    shutil.copytree(trained_once, place, dirs_exist_ok=True)
    config = place / "run/config.json"
    config.write_text(config.read_text().replace(str(trained_once), str(place)))
    return place / "run"


def test_training_says_what_it_found_chose_and_skipped(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digit_files(place / "photos")
    (place / "photos/unlabeled/broken.png").write_text("no picture")
    main(["train", "photos", *QUICK])
    out, err = capsys.readouterr()
    assert "10 classes: 0 4, 1 4, 2 4" in err
    assert "40 labeled, 151 unlabeled, 0 validation, 50 test images, 8×8 pixels, grayscale" in err
    assert "--image-size 8 --no-flip --padding 1 --cutout 4 --network small --steps 6 --batch-size 8" in err
    assert "test error" in out
    assert "unlabeled/broken.png is not an image" in out
    config = json.loads((place / "runs/photos-all-rankingmatch-bm-0/config.json").read_text())
    assert config["dataset"] == str(place / "photos")


def test_without_anything_to_evaluate_on_only_training_is_reported(
    place: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    class_folders(place / "photos")
    picture(place / "more/1.png")
    main(["train", "photos", "--unlabeled", "more", *SMALL, "--out", "run"])
    out, err = capsys.readouterr()
    assert "no validation or test images, and too few labels" in err
    assert out.startswith("trained with 12 labels")
    assert "neither test nor validation images" in refused("evaluate", "run")
    class_folders(place / "photos/labeled")
    class_folders(place / "photos/val", each=2)
    line = refused("train", "photos", *QUICK, "--validation", "3", "--out", "new", "--quiet")
    assert "--validation is 3, but the data has 6" in line  # they are not held out again
    assert not (place / "new").exists()


def test_what_becomes_of_the_labels_is_one_sentence(place: Path) -> None:
    class_folders(place / "photos", each=10)
    held, kept = "6 are held out for validation", "9 keep their labels for training"
    for given, words in (
        ({}, f"{held} because there are no validation images, and the others are trained on"),
        ({"labels": 9}, f"{held}, {kept}, and the others are used without labels"),
        ({"labels": 9, "validation": 0}, f"{kept}, and the others are used without labels"),
    ):
        said = str(describe_plan(resolve("photos", "supervised", given)))
        assert said.endswith(f"of the 30 labeled images, {words}")


def test_a_name_comes_before_a_folder_of_that_name(place: Path) -> None:
    digit_files(place / "digits")
    assert "./digits" in str(describe_plan(resolve("digits", "supervised", {})))
    assert "150 unlabeled" in str(describe_plan(resolve("./digits", "supervised", {})))


def test_a_run_goes_on_from_elsewhere_but_not_with_other_images(
    trained: Path, place: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (trained / "result.json").unlink()
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    main(["train", "../digits-files", "--resume", "--out", str(trained), "--quiet"])
    (trained / "result.json").unlink()
    os.utime(next((place / "digits-files/unlabeled").iterdir()), ns=(1, 1))
    assert "changed" in refused("train", "--resume", "--out", trained, "--quiet")


# --- predict -------------------------------------------------------------------------------------------------


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


def evaluation(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    main(["evaluate", "run", *arguments, "--json"])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_predictions_are_those_that_were_evaluated(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = evaluation(capsys)
    assert own["images"] == 50
    for data in ("digits-files", "digits-files/test"):  # a folder with a test/, and class folders
        assert evaluation(capsys, data)["confusion"] == own["confusion"]
    main(["predict", "run", "digits-files/test", "--out", "p.csv", "--probabilities"])
    rows = table(trained.parent / "p.csv")
    assert list(rows[0]) == ["file", "label", "confidence", *"0123456789"]
    wrong = sum(Path(row["file"]).parent.name != row["label"] for row in rows)
    assert 100 * wrong / len(rows) == pytest.approx(own["test_error"])
    for row in rows:
        values = [float(row[name]) for name in "0123456789"]
        assert sum(values) == pytest.approx(1, abs=1e-4)
        assert float(row["confidence"]) == max(values) == values[int(row["label"])]


def test_predict_evaluate_agree_where_images_must_be_resized(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in ("labeled", "test"):
        class_folders(place / "photos" / part)
    main(["train", "photos", "--method", "supervised", *QUICK, "--image-size", "8", "--out", "run", "--quiet"])
    assert evaluation(capsys, "photos")["calibration_error"] == evaluation(capsys)["calibration_error"]


def test_any_name_survives_and_bad_files_are_listed(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = trained.parent / "new"
    names = ["with space.png", "a, b.png", 'say "hi".png', "ünï 图.png", "two\nlines.png", "no ending", "'.PNG"]
    names.append(os.fsdecode(b"\xff.png"))
    place.mkdir()
    for name in names:
        picture(place / "x.png").rename(place / name)
    (place / "broken.png").write_text("no picture")
    (place / "notes.txt").write_text("not even by its name")
    main(["predict", "run", "new", "--out", "p.csv"])
    assert "new/broken.png is not an image" in capsys.readouterr().err
    assert sorted(row["file"] for row in table(trained.parent / "p.csv")) == sorted(f"new/{name}" for name in names)
    main(["predict", "run", "new", "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(line["file"] for line in lines) == sorted(f"new/{name}" for name in names)
    assert set(lines[0]) == {"file", "label", "confidence"}
    for end, listed in (("\0", names), ("\n", [name for name in names if "\n" not in name])):
        given = os.fsencode(end.join(f"new/{name}" for name in listed))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        main(["predict", "run", "-", "--out", "p.csv", *(["--null"] if end == "\0" else [])])
        assert [row["file"] for row in table(trained.parent / "p.csv")] == [f"new/{name}" for name in listed]


@pytest.mark.parametrize(
    "command", ["predict run digits-files/test --probabilities", "evaluate run digits-files --json"]
)
def test_onnx_runtime_gives_the_same_answers(
    command: str, trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(command.split())
    by_torch = capsys.readouterr().out
    monkeypatch.setattr(onnx, "WORTH_CONVERTING", 1)
    converted = Mock(side_effect=onnx.onnx_function)
    monkeypatch.setattr(onnx, "onnx_function", converted)
    main(command.split())
    by_onnx = capsys.readouterr().out
    assert converted.call_count == 1
    number = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
    assert number.sub("#", by_onnx) == number.sub("#", by_torch)
    ours, theirs = ([float(value) for value in number.findall(text)] for text in (by_onnx, by_torch))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("link", [False, True])
def test_images_are_sorted_into_class_folders(link: bool, trained: Path) -> None:
    place = trained.parent
    for number, file in enumerate(sorted((place / "digits-files/test").rglob("*.png"))[:6]):
        (place / "new" / str(number)).mkdir(parents=True)
        shutil.copy(file, place / "new" / str(number) / "same.png")
    main(["predict", "run", "new", "--out", "p.csv", "--sort-into", "sorted", *(["--link"] if link else [])])
    rows = table(place / "p.csv")
    made = sorted((place / "sorted").rglob("*.png"))
    assert len(made) == len(rows) == 6
    assert all(path.is_symlink() == link for path in made)
    by_content = {path.read_bytes(): path.parent.name for path in made}
    for row in rows:
        assert by_content[Path(row["file"]).read_bytes()] == row["label"]
    assert not list(place.glob(".sorted*"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("nowhere.png", "nowhere.png"),
        ("empty", "no images"),
        ("empty --out photo.JPG", "--out photo.JPG"),
        ("empty --out run/model.safetensors", "--out run/model.safetensors"),
        ("empty --out digits-files", "--out digits-files is a directory"),
        ("bad", "bad/0.png is empty, bad/1.png is empty"),
        ("phone.jpg", "phone.jpg is a HEIC image"),
        ("digits-files --link", "--link"),
        ("digits-files --sort-into digits-files", "--sort-into digits-files"),
        ("digits-files --sort-into .", "--sort-into ."),
        ("digits-files --out nowhere/p.csv", "directory nowhere"),
    ],
)
def test_predict_names_what_cannot_be_done_and_leaves_nothing(
    arguments: str, named: str, trained: Path, refused: Callable[..., str]
) -> None:
    place = trained.parent
    for number in range(2):
        picture(place / "bad" / f"{number}.png").write_bytes(b"")
    (place / "empty").mkdir()
    (place / "phone.jpg").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))
    before = sorted(place.iterdir())
    out = [] if "--out" in arguments else ["--out", "p.csv"]
    sort = [] if "--sort-into" in arguments or "--link" in arguments else ["--sort-into", "sorted"]
    assert named in refused("predict", "run", *arguments.split(), *out, *sort, "--quiet")
    assert sorted(place.iterdir()) == before


def test_evaluate_names_classes_that_were_not_trained_and_leaves_out_those_without_images(
    trained: Path, place: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    class_folders(place / "photos")
    assert "'blue'" in refused("evaluate", "run", "photos")
    (place / "some").mkdir()
    (place / "digits-files/test/3").rename(place / "some/3")
    errors = evaluation(capsys, "some")["class_errors"]
    assert [label for label, error in enumerate(errors) if error is not None] == [3]
    main(["evaluate", "run", "some"])
    assert capsys.readouterr().out.count("–") == 2 * 9  # neither error nor recall
