"""Every code block of the docs runs as written, every example runs, and the site is built without a warning.

Training is shortened only if the command or call does not give its length.
"""

import csv
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from fenced import ROOT, blocks_of, run_page
from PIL import Image

from rankingmatch import estimator
from rankingmatch.augment import OPERATIONS
from rankingmatch.cli import main
from rankingmatch.core import errors
from rankingmatch.data import Benchmark, ImageFolder, suggested_settings
from rankingmatch.methods import METHODS
from rankingmatch.networks import NETWORKS
from rankingmatch.report.sections import embedding

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SHORT = 4  # steps


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with its own cache, where training is short unless its length is given, and embeddings are small."""

    def short(settings: Any) -> Any:
        return lambda *arguments: {**settings(*arguments), "steps": SHORT}

    for kind in (Benchmark, ImageFolder):
        monkeypatch.setattr(kind, "preset", short(kind.preset))
    monkeypatch.setattr(estimator, "suggested_settings", short(suggested_settings))
    monkeypatch.setattr(embedding, "POINTS", {})
    monkeypatch.setattr(embedding, "POINTS_OF_MANY_RUNS", 60)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command line adds the current directory
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    with patch.dict(METHODS), patch.dict(NETWORKS), patch.dict(OPERATIONS):  # without what a page registers
        yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("my_"):
            del sys.modules[name]


def make_photos() -> None:
    """The folder that the tutorial creates, as photographs, and a few more images."""
    made, *_ = (block for block in blocks_of(ROOT / "docs/tutorial.md") if block.language == "python")
    exec(made.text, {})
    Path("digit-images").rename("photos")
    Path("photos/unlabeled").rename("all")
    for name in ("photos/unlabeled", "new-photos"):
        Path(name).mkdir()
    for number, file in enumerate(sorted(Path("all").iterdir())[:300]):
        file.rename(Path("new-photos" if number < 50 else "photos/unlabeled") / file.name)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_runs_as_written(page: Path, place: Path) -> None:
    if page.name == "README.md":
        make_photos()
    run_page(page)
    if page.name == "tutorial.md":
        assert json.loads(Path("runs/digit-images/result.json").read_text())["test_error"] < 60  # 90: nothing learned
        rows = Path("predictions.csv").read_text().splitlines()
        assert len(rows) == 1 + len(list(Path("sorted").rglob("*.png"))) == 1 + 1657


def test_every_make_target_file_test_and_module_named_in_the_docs_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    package = ROOT / "src/rankingmatch"
    folders = "|".join(path.name for path in package.iterdir() if path.is_dir())
    found = 0
    for page in PAGES:
        text = page.read_text()
        named = {word for names in re.findall(r"`make ([a-z -]+)`", text) for word in names.split()}
        assert named <= targets, page
        files = re.findall(r"`((?:tests|benchmarks|docs|examples|tools)/[\w/.-]+\w)/?(?:::(\w+))?`", text)
        modules = [(f"src/rankingmatch/{name}", "") for name in re.findall(rf"`((?:{folders})/[\w/.]+)`", text)]
        for name, test in files + modules:
            if "NAME" not in name:
                assert (ROOT / name).exists(), f"{page}: {name}"
                assert not test or f"def {test}(" in (ROOT / name).read_text(), f"{page}: {name}::{test}"
        found += len(named) + len(files) + len(modules)
    assert found > 80


# --- examples and benchmarks ---------------------------------------------------------------------------------


def run(*command: object, cwd: Path | None = None, **environment: str) -> str:
    """What a Python command prints; it must succeed."""
    names = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=names, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps", "highest"), [("quickstart", 60, [70]), ("own_loop", 150, [30]), ("grid_search", 2, [100] * 4)]
)
def test_an_example_learns(name: str, steps: int, highest: list[int], place: Path) -> None:
    out = run(ROOT / f"examples/{name}.py", steps)
    errors = re.findall(r"test error ([\d.]+)%|threshold': 0\.\d+}: ([\d.]+)% error", out)
    assert all(float(a or b) < most for (a, b), most in zip(errors, highest, strict=True))  # 90 if nothing is learned
    assert (place / "digits.safetensors").exists() == (name == "quickstart")


@pytest.mark.slow
def test_the_exported_model_predicts_the_same_without_torch_and_this_package(place: Path) -> None:
    make_photos()
    main(["train", "photos", "--steps", "30", "--out", "run", "--quiet", "--no-report"])
    main(["export", "run", "model.onnx"])
    images = sorted(Path("new-photos").iterdir())[:20]
    Image.open(images[0]).convert("RGB").resize((40, 30)).save(images[0])  # another size and mode
    main(["predict", "run", *map(str, images), "--out", "predicted.csv"])
    with Path("predicted.csv").open() as file:
        rows = [f"{row['file']}: {row['label']} ({float(row['confidence']):.0%})" for row in csv.DictReader(file)]
    for name in ("torch", "rankingmatch"):
        Path(f"{name}.py").write_text("raise ImportError('not here')")
    out = run(ROOT / "examples/onnx_inference.py", "model.onnx", *images, PYTHONPATH=str(place))
    assert out.splitlines() == rows


# --- the site ------------------------------------------------------------------------------------------------


# Documented under another name than the one they are imported by.
ELSEWHERE = {
    "rankingmatch.networks.wide_resnet": "rankingmatch.networks.wide_resnet.wide_resnet",
    **{f"rankingmatch.{name}": f"rankingmatch.core.errors.{name}" for name in errors.__all__},
}


@pytest.mark.slow
def test_the_site_has_every_page_and_public_name_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the site needs pip install 'rankingmatch[docs]'")
    command = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    assert run(*command, cwd=ROOT, NO_MKDOCS_2_WARNING="1") == ""
    for path in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / path.relative_to(ROOT / "docs").with_suffix(".html")).exists(), path
    pages = {path: path.read_text() for path in tmp_path.rglob("*.html")}
    for path, text in pages.items():
        assert not re.findall(r"<(?:script|img|iframe|link)[^>]*(?:src|href)=\"?(?:https?:)?//[^>]*>", text), path
    for sheet in tmp_path.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text()), sheet
    documented = set(re.findall(r'id="(rankingmatch[\w.]*)"', "".join(pages.values())))
    assert {"rankingmatch.training.loop.train", "rankingmatch.runs.predict.predict_files"} <= documented
    for package in ("rankingmatch", *(f"rankingmatch.{part}" for part in ("losses", "augment", "methods", "networks"))):
        module = importlib.import_module(package)
        for name in module.__all__:
            value, full = getattr(module, name), f"{package}.{name}"
            if inspect.isclass(value) or inspect.isfunction(value):
                assert ELSEWHERE.get(full, full) in documented
