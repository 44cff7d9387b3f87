"""The examples of the docs run as written."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from rankingmatch.cli import main

ROOT = Path(__file__).parent.parent


def python_blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)


def test_the_readme_example_runs() -> None:
    (block,) = python_blocks("README.md")
    exec(block, {})


def test_the_tutorial_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (block,) = python_blocks("docs/tutorial.md")
    exec(block, {})
    commands = re.findall(r"^rankingmatch (.*)$", (ROOT / "docs/tutorial.md").read_text(), flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["train", "predict", "predict", "evaluate"]
    for command in commands:
        main(shlex.split(command))
    shown = capsys.readouterr().err
    quoted = re.findall(r"^(40 labeled.*|settings: .*)$", (ROOT / "docs/tutorial.md").read_text(), flags=re.MULTILINE)
    assert len(quoted) == 2
    assert all(line in shown for line in quoted)
    assert json.loads((tmp_path / "runs/photos/result.json").read_text())["test_error"] < 60  # nothing learned: 90
    rows = (tmp_path / "predictions.csv").read_text().splitlines()
    assert len(rows) == 1 + len(list((tmp_path / "sorted").rglob("*.png"))) == 1 + 1657


def test_the_recipes_of_the_docs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = python_blocks("docs/reproduce.md")
    exec(block, {})
    (recipe,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/reproduce.md").read_text(), flags=re.DOTALL)
    (tmp_path / "mine.toml").write_text(recipe)
    main(["bench", "mine.toml", "--folds", "1", "--quiet", "--set", "steps=2", "--set", "mu=1"])


def test_the_estimators_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(python_blocks("docs/estimator.md"))
    quick, count = re.subn("random_state=0", "random_state=0, steps=4", text)
    assert count == text.count("RankingMatchClassifier(")
    exec(quick, {})
    assert (tmp_path / "digits.safetensors").exists()


def test_the_method_of_the_docs_trains_with_its_own_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = python_blocks("docs/methods.md")
    (tmp_path / "my_package.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    quick = ["--steps", "4", "--batch-size", "8", "--mu", "1", "--quiet", "--no-report"]
    main(["train", "digits", "--method", "my_package:Consistency", "--consistency-weight", "2", *quick])
    config = (tmp_path / "runs/digits-40-my_package.Consistency-0/config.json").read_text()
    assert '"consistency_weight": 2.0' in config
    sys.modules.pop("my_package")
