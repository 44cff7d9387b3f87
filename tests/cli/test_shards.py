"""Training, evaluation and prediction from shards give what the same folder gives."""

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from image_folders import digit_files
from killing import content, history
from shard_files import member, shards_of, write_tar

from rankingmatch.cli import main
from rankingmatch.runs.config import plan_of
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import start, training_records

QUICK = ["--steps", "12", "--batch-size", "8", "--mu", "2", "--network", "wrn-10-1", "--threads", "1", "--no-report"]
QUICK += ["--evaluate-every", "4", "--method", "fixmatch-ra", "--quiet"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images in folders and in shards, and a run of each."""
    path = tmp_path_factory.mktemp("sharded")
    digit_files(path / "folder")
    shards_of(path / "folder", path / "shards", each=30)
    for name in ("folder", "shards"):
        main(["train", str(path / name), *QUICK, "--out", str(path / f"{name}-run")])
    return path


def rows(table: Path) -> list[list[str]]:
    return list(csv.reader(table.read_text().splitlines()))


def test_training_is_the_same(place: Path, tmp_path: Path) -> None:
    assert content(place / "shards-run") == content(place / "folder-run")
    main(["report", str(place / "shards-run"), "--out", str(tmp_path / "report.html")])
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_a_run_resumes_exactly_and_only_with_the_same_shards(
    place: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    run = Run(tmp_path / "run")
    for record in training_records(start(run, plan_of(Run(place / "shards-run").config()))):
        if record.step == 5:
            break
    shutil.copytree(run.path, tmp_path / "other")
    main(["train", "--resume", "--out", str(run.path), "--quiet", "--no-report"])
    assert history(run.path) == history(place / "shards-run")
    shard = place / "shards/unlabeled-0.tar"
    before = shard.stat().st_mtime_ns
    os.utime(shard, ns=(0, 0))
    try:
        assert str(tmp_path / "other") in refused("train", "--resume", "--out", tmp_path / "other", "--quiet")
    finally:
        os.utime(shard, ns=(before, before))


def test_predictions_are_named_by_shard_and_member(place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(place)
    main(["predict", "shards-run", "shards", "--probabilities", "--out", str(tmp_path / "shards.csv"), "--quiet"])
    main(["predict", "folder-run", "folder", "--probabilities", "--out", str(tmp_path / "folder.csv"), "--quiet"])
    mine, theirs = rows(tmp_path / "shards.csv"), rows(tmp_path / "folder.csv")
    assert mine[1][0] == "shards/labeled-0.tar/0000.png"
    assert len(mine) == 1 + 40 + 50 + 150
    assert [row[1:] for row in mine] == [row[1:] for row in theirs]  # labeled/, test/, unlabeled/ in both
    several = ["shards/test-1.tar", "shards/test-0.tar", str(next(Path("folder/test/3").iterdir()))]
    main(["predict", "shards-run", *several, "--out", str(tmp_path / "x.csv"), "--quiet"])
    files = [row[0] for row in rows(tmp_path / "x.csv")[1:]]
    assert files[0] == f"{several[0]}/0030.png"
    assert files[20] == f"{several[1]}/0000.png"
    assert files[50:] == several[2:]


@pytest.mark.parametrize("link", [[], ["--link"]])
def test_images_of_shards_are_copied_into_class_folders(place: Path, tmp_path: Path, link: list[str]) -> None:
    test = str(place / "shards/test-0.tar")
    main(["predict", str(place / "shards-run"), test, "--sort-into", str(tmp_path / "sorted"), *link, "--quiet"])
    found = list((tmp_path / "sorted").rglob("*.png"))
    contents = {path.read_bytes() for path in (place / "folder/test").rglob("*.png")}
    assert len(found) == 30
    assert all(path.read_bytes() in contents and not path.is_symlink() for path in found)


def test_damaged_members_are_listed(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [member(path.name, path.read_bytes()) for path in (place / "folder/test/1").iterdir()]
    shard = write_tar(tmp_path / "x.tar", [*good, member("bad.png", b"bad"), member("../out.png", good[0][1])])
    main(["predict", str(place / "shards-run"), str(shard), "--out", str(tmp_path / "x.csv")])
    said = capsys.readouterr().err
    assert f"{shard}/bad.png is not an image" in said
    assert f"{shard}/../out.png has a name that leads out of the shard" in said
    assert len(rows(tmp_path / "x.csv")) == 1 + len(good)


def test_evaluation_leaves_out_what_was_trained_on(
    place: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    found = []
    for name in ("shards", "folder"):
        for data in ("shards", "folder"):
            main(["evaluate", str(place / f"{name}-run"), str(place / data), "--json"])
            found.append(json.loads(capsys.readouterr().out))
    assert {(one["part"], one["images"], one["test_error"]) for one in found} == {("test", 50, found[0]["test_error"])}
    main(["evaluate", str(place / "shards-run"), "--json"])
    assert json.loads(capsys.readouterr().out)["test_error"] == found[0]["test_error"]
    assert "used in training" in refused("evaluate", place / "folder-run", place / "shards/labeled-0.tar")


def test_a_recipe_on_shards_gives_the_errors_of_the_folder(place: Path, tmp_path: Path) -> None:
    tables = []
    for name in ("shards", "folder"):
        command = ["bench", "demo", "--data", str(place / name), "--folds", "1", "--scale", "tiny"]
        command += ["--set", "steps=3", "--set", "threads=1", "--markdown", str(tmp_path / "table.md")]
        main([*command, "--out", str(tmp_path / name)])
        assert "| supervised" in (tmp_path / "table.md").read_text()
        results = sorted((tmp_path / name).rglob("result.json"))
        tables.append([json.loads(path.read_text())["test_error"] for path in results])
    assert tables[0] == tables[1]
    assert len(tables[0]) > 1
