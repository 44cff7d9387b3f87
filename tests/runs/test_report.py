"""The report of runs that were really made."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rankingmatch.cli import main
from rankingmatch.cli.flags import setting_flags
from rankingmatch.core.errors import DataError
from rankingmatch.runs import job, report
from rankingmatch.runs.config import repeat_command, resolve
from rankingmatch.runs.directory import Run

QUICK = ["--steps", "12", "--batch-size", "8", "--mu", "1", "--network", "wrn-10-1", "--evaluate-every", "4", "--quiet"]


@pytest.fixture(scope="module", autouse=True)
def fast_maps() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankingmatch.report.sections.embedding.embed", lambda vectors: vectors[:, :2])
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    flags = ["--tensorboard", "--measure-steps", "--threshold", "0.1"]
    main(["train", "digits", *QUICK, "--out", str(run), *flags])
    return run


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def content_of(page: Path) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="content">(.*?)</script>', page.read_text())
    return dict(json.loads(text))


def test_training_ends_with_a_page_that_agrees_with_the_result(finished: Path) -> None:
    content = content_of(finished / "report.html")
    (run,), sections = content["runs"], content["sections"]
    measured = sections["overview"]["runs"][0]["measured"]
    result = json.loads((finished / "result.json").read_text())
    assert measured["error"] == pytest.approx(result["test_error"])
    assert measured["images"] == 360
    assert len(sections["pseudo_labels"][0]["rows"]) == run["unlabeled"] > 1000
    assert {panel["key"] for panel in sections["training"]} >= {
        "losses",
        "class_shares",
        "epoch_memory",
        "batch_seconds",
    }
    assert sections["overview"]["notes"] == []
    assert (finished / "report.html").stat().st_size < 15e6


def test_the_history_has_what_the_page_needs(finished: Path) -> None:
    for line in Run(finished).history():
        assert sum(line["class_shares"]) == pytest.approx(1)
        assert len(line["class_shares"]) == 10
        assert line["step_seconds"] > 0
        assert line["memory"] > 2**20
    costs = Run(finished).step_costs()
    last = Run(finished).history()[-1]
    assert last["step_seconds"] == pytest.approx(costs[8:12, 1].mean(), rel=1e-3)
    assert last["memory"] == costs[8:12, 2].max()


def test_tensorboards_own_reader_reads_the_events(finished: Path) -> None:
    events = EventAccumulator(str(finished / "tensorboard"))
    events.Reload()
    history = Run(finished).history()
    errors = events.Scalars("error/test")
    assert [event.step for event in errors] == [4, 8, 12]
    assert [event.value for event in errors] == pytest.approx([line["test_error"] for line in history])
    assert events.Scalars("loss/total")[-1].value == pytest.approx(history[-1]["loss_total"])
    assert events.Scalars("pseudo-labels of class/3")[-1].value == pytest.approx(history[-1]["class_shares"][3])


def test_tensorboard_that_is_not_there_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line = refused("train", "digits", *QUICK, "--out", tmp_path / "run", "--tensorboard")
    assert "pip install 'rankingmatch[tensorboard]'" in line
    assert list(tmp_path.iterdir()) == []


def test_figures_are_written_in_two_formats(copy: Path, tmp_path: Path) -> None:
    main(["report", str(copy), "--figures", str(tmp_path / "figures"), "--audit", "50"])
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    for name in ("losses", "confusion", "map_logits", "map_representations", "similarity_outputs", "batch_seconds"):
        assert {f"{name}.png", f"{name}.svg"} <= names
    (labels,) = content_of(copy / "report.html")["sections"]["pseudo_labels"]
    assert len(labels["rows"]) == 50
    assert labels["total"] > 1000


def test_a_run_under_way_shows_its_best_weights_if_it_has_any(copy: Path) -> None:
    for name in ("result.json", "model.safetensors"):
        (copy / name).unlink()
    overview = content_of(report.write_report([copy], audited=20))["sections"]["overview"]
    assert "not finished: 12 of 12" in overview["notes"][0]["text"]
    assert "lowest validation error so far" in overview["runs"][0]["weights"]
    assert overview["runs"][0]["measured"] is not None
    for name in ("best.safetensors", "metrics.jsonl", "steps.csv"):
        (copy / name).unlink()
    notes = content_of(report.write_report([copy]))["sections"]["overview"]["notes"]
    texts = " ".join(note["text"] for note in notes)
    assert "0 of 12" in texts
    assert "there is no model yet" in texts


def test_a_run_that_diverged_has_a_page_made_by_itself(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(SystemExit) as left:
        main(["train", "digits", *QUICK, "--learning-rate", "1e30", "--out", str(run)])
    assert left.value.code == 1
    assert "no longer finite" in content_of(run / "report.html")["sections"]["overview"]["notes"][0]["text"]


@pytest.mark.parametrize("keep_validation", [True, False])
def test_without_test_images_others_are_shown_and_named(
    keep_validation: bool, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_split(config: Any) -> Any:
        split = original(config)
        return replace(split, test=None, validation=split.validation if keep_validation else None)

    original = job.load_split
    monkeypatch.setattr(report, "load_split", load_split)
    content = content_of(report.write_report([copy], audited=30))
    part = "validation" if keep_validation else "unlabeled"
    assert content["sections"]["embedding"][0]["subset"] == part
    assert any(f"{part} images are shown instead" in note["text"] for note in content["sections"]["overview"]["notes"])


def test_data_that_is_gone_leaves_the_curves(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_split(config: Any) -> Any:
        raise DataError("gone")

    monkeypatch.setattr(report, "load_split", load_split)
    content = content_of(report.write_report([copy]))
    assert "cannot be read (gone)" in content["sections"]["overview"]["notes"][0]["text"]
    assert content["sections"]["training"]


def test_a_report_that_fails_does_not_spoil_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(report, "write_atomically", fails)
    main(["train", "digits", *QUICK, "--method", "supervised", "--out", str(tmp_path / "run")])
    assert "no report was written (disk full)" in caplog.text
    assert (tmp_path / "run/result.json").exists()


def test_several_runs_are_named_by_what_tells_them_apart(finished: Path, copy: Path, tmp_path: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["training"]["seed"] = 7
    (copy / "config.json").write_text(json.dumps(config))
    page = report.write_report([finished, copy, finished], tmp_path / "both.html", audited=20)
    content = content_of(page)
    assert [run["name"] for run in content["runs"]] == ["rankingmatch-bm, seed 0", "rankingmatch-bm, seed 7"]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"labels": 50, "seed": 3, "threshold": 0.8, "steps": 7},
        {"epochs": 0.5, "flip": True, "include_labeled": True},
        {"image_size": 16, "padding": 3},
    ],
)
def test_the_command_repeats_the_run(given: dict[str, Any]) -> None:
    config = resolve("digits", "rankingmatch-bm", given).config
    words = repeat_command(config).split()
    assert words[:5] == ["rankingmatch", "train", "digits", "--method", "rankingmatch-bm"]
    known = {name for flag in setting_flags() for name in (*flag.opts, *flag.secondary_opts)}
    again: dict[str, Any] = {}
    for place, word in enumerate(words):
        if word.startswith("--no-"):
            again[word[5:].replace("-", "_")] = False
        elif word.startswith("--") and word != "--method":
            assert word in known or word == "--threshold"
            value = words[place + 1] if place + 1 < len(words) else "--"
            again[word[2:].replace("-", "_")] = True if value.startswith("--") else json.loads(value)
    assert resolve("digits", "rankingmatch-bm", again).config.learns_like(config)


def test_the_command_gives_the_folds_of_a_dataset_or_a_split_instead_of_numbers() -> None:
    assert "--labels" not in repeat_command(resolve("stl10", "supervised", {}).config)
    assert "--labels 0" in repeat_command(resolve("stl10", "supervised", {"labels": 0}).config)
    given = {"split": "some.json", "labels": 20, "validation": 3}
    command = repeat_command(resolve("digits", "supervised", given).config)
    assert "--labels" not in command
    assert "--validation" not in command
    assert f"--split {Path.cwd() / 'some.json'}" in command
