"""Every file has a format number; one from a newer version is refused. A run records the commit of the source code."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tiny import tiny_settings, tiny_split, tiny_state

import rankingmatch as rm
from rankingmatch.core.untrusted import FORMATS, check_format
from rankingmatch.runs import directory
from rankingmatch.runs.checkpoint import checksums, restore_latest, save_checkpoint
from rankingmatch.runs.directory import Run, source_commit
from rankingmatch.runs.model import load_model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("formats") / "run"
    given: dict[str, Any] = {"labels": 40, "steps": 2, "batch_size": 8, "threads": 1}
    return rm.train("digits", method="supervised", out=out, report=False, **given)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("config.json", Run.config),
        ("split.json", Run.split_rows),
        ("result.json", Run.result),
        ("metrics.jsonl", Run.history),
    ],
)
def test_a_file_has_its_number_a_newer_one_is_refused_and_one_without_is_an_old_one(
    run: Run, name: str, read: Callable[[Run], Any]
) -> None:
    path = run.path / name
    before, known = path.read_text(), read(run)
    values = json.loads(before.splitlines()[0] if name == "metrics.jsonl" else before)
    assert values.pop("format") == FORMATS[path.stem]
    try:
        path.write_text(json.dumps({**values, "format": 99}) + "\n")
        with pytest.raises(rm.RunError, match=r"newer version of rankingmatch \(format 99; .*upgrade"):
            read(run)
        path.write_text(json.dumps(values) + "\n")
        assert read(run) in (known, known[:1] if name == "metrics.jsonl" else known)
    finally:
        path.write_text(before)


def test_a_newer_model_or_checkpoint_is_refused(run: Run, tmp_path: Path) -> None:
    with safe_open(run.model_path, "pt") as file:
        values = json.loads(file.metadata()["rankingmatch"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert values["format"] == FORMATS["model"]
    save_file(tensors, tmp_path / "new.safetensors", {"rankingmatch": json.dumps({**values, "format": 99})})
    with pytest.raises(rm.RunError, match="newer"):
        load_model(tmp_path / "new.safetensors", torch.device("cpu"))
    state = tiny_state(tiny_split(), tiny_settings())
    save_checkpoint(tmp_path, state)
    (path,) = tmp_path.glob("*.json")
    values = json.loads(path.read_text())
    assert values["format"] == FORMATS["checkpoint"]
    values["format"] = 99
    path.write_text(json.dumps({**values, **checksums(values, path.with_suffix(".safetensors").read_bytes())}))
    with pytest.raises(rm.RunError, match="newer"):
        restore_latest(tmp_path, state)


@pytest.mark.parametrize("number", [0, -1, "1", None, 1.5, True])
def test_a_number_that_is_none_is_refused(number: Any, tmp_path: Path) -> None:
    with pytest.raises(rm.RunError, match="format"):
        check_format("config", {"format": number}, tmp_path)


def test_the_commit_and_whether_files_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    module = tmp_path / "src/package/runs/directory.py"
    module.parent.mkdir(parents=True)
    module.touch()
    monkeypatch.setattr(directory, "__file__", str(module))
    assert source_commit.__wrapped__() == ""  # no repository
    git("init", "-q")
    assert source_commit.__wrapped__() == ""  # no commit
    git("add", ".")
    git("commit", "-qm", "first")
    assert source_commit.__wrapped__() == git("rev-parse", "HEAD")[:12]
    module.write_text("changed")
    assert source_commit.__wrapped__() == git("rev-parse", "HEAD")[:12] + "+"
