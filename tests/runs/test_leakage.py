"""An error on images of training is not called a test error, and a run is not resumed with the files of another."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from image_folders import digit_files
from shard_files import write_parquet

import rankingmatch as rm
from rankingmatch.runs.directory import Run
from rankingmatch.runs.evaluate import evaluate, roles_in_training

QUICK: dict[str, Any] = {"steps": 3, "network": "small", "batch_size": 8, "mu": 1, "evaluate_every": 3, "threads": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 labeled digits, 30 unlabeled ones, and 50 for testing elsewhere."""
    root = digit_files(tmp_path_factory.mktemp("digits") / "digits", labeled=20, unlabeled=30, test=5)
    (root / "test").rename(root.parent / "others")
    return root


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return rm.train(folder, out=folder.parent / "run", validation=40, labels=100, report=False, **QUICK)


@pytest.mark.parametrize("left_out", [0, 160])
def test_without_test_images_the_validation_images_are_evaluated_also_of_the_folder_of_training(
    left_out: int, run: Run, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    report, result = evaluate(run, folder if left_out else None), run.result()
    assert (report["part"], report["images"], report["left_out"]) == ("validation", 40, left_out)
    said = "160 of 200 images were used in training (100 labeled, 60 unlabeled) and are left out" in caplog.text
    assert said == bool(left_out)
    assert "test_error" not in report
    assert result is not None
    assert report["error"] == pytest.approx(result.val_error)


def test_of_mixed_images_only_the_new_ones_are_evaluated(run: Run, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "labeled", tmp_path / "mixed")
    shutil.copytree(folder.parent / "others", tmp_path / "mixed", dirs_exist_ok=True)
    report = evaluate(run, str(tmp_path / "mixed"))
    assert (report["part"], report["images"], report["left_out"]) == ("test", 50, 200)
    assert report["test_error"] == evaluate(run, str(folder.parent / "others"))["test_error"]


def test_an_image_in_a_shard_that_cannot_be_read_is_no_copy_and_is_skipped(
    run: Run, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("pyarrow")
    images: list[bytes | None] = [path.read_bytes() for path in sorted((folder.parent / "others/3").iterdir())]
    shard = write_parquet(tmp_path / "x.parquet", [*images, b""], ["3"] * (len(images) + 1))
    assert evaluate(run, shard)["images"] == len(images)
    assert "1 files were skipped" in caplog.text


def test_images_of_training_alone_are_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    files = sorted(map(str, (folder / "labeled").rglob("*.png")))
    roles = roles_in_training(run, files)
    assert roles is not None
    for file in files:
        if roles[file] != "validation":
            target = tmp_path / "trained" / Path(file).relative_to(folder / "labeled")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file)
    with pytest.raises(rm.DataError, match=r"all 160 images of .*trained were used in training, 100 of them with"):
        evaluate(run, str(tmp_path / "trained"))


def test_if_the_folder_is_gone_nothing_is_called_a_test(
    run: Run, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    config = json.loads((tmp_path / "run/config.json").read_text())
    config["dataset"] = str(tmp_path / "gone")
    (tmp_path / "run/config.json").write_text(json.dumps(config))
    with caplog.at_level(logging.WARNING):
        report = evaluate(Run(tmp_path / "run"), str(folder.parent / "others"))
    assert report["part"] == "unverified"
    assert "test_error" not in report
    assert "this is not a test error" in caplog.text


# --- resuming ------------------------------------------------------------------------------------------------

SHORT: dict[str, Any] = {**QUICK, "steps": 4, "checkpoint_steps": 1}


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A run with checkpoints that has not written its result."""
    run = rm.train("digits", out=tmp_path / "one", report=False, seed=0, **SHORT)
    for name in ("result.json", "model.safetensors"):
        (run.path / name).unlink()
    return run.path


def resume(path: Path) -> Run:
    return rm.train("digits", out=path, resume=True, report=False)


@pytest.mark.parametrize("what", ["checkpoints", "config.json"])
def test_the_files_of_another_seed_are_not_mixed_in(what: str, interrupted: Path, tmp_path: Path) -> None:
    other = rm.train("digits", out=tmp_path / "two", report=False, seed=1, **SHORT).path
    if what == "checkpoints":
        shutil.rmtree(interrupted / what)
        shutil.copytree(other / what, interrupted / what)
    else:
        shutil.copy(other / what, interrupted / what)
    with pytest.raises(rm.RunError, match=r"is of another run: its (seed|rows) is .*restore the files of this run"):
        resume(interrupted)


def test_without_its_split_a_run_is_not_resumed(interrupted: Path) -> None:
    (interrupted / "split.json").unlink()
    with pytest.raises(rm.RunError, match=r"has no split\.json"):
        resume(interrupted)
