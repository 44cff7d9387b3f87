"""Nothing in the current directory is imported, except what the user names; nothing that only a file names, either."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from image_folders import picture

from rankingmatch import ConfigError, Run, RunError
from rankingmatch.runs.config import resolve

RECORD = "open({!r}, 'a').write(__name__ + '\\n')\n"
OPTIONAL = ("dill", "cuda", "pandas", "polars", "cupy", "tensorflow", "jax", "pytorch_lightning", "orjson", "uvloop")


@pytest.fixture
def poisoned(tmp_path: Path) -> Path:
    """A directory with a file, or a class folder, under the name of everything that anything might import."""
    folder = tmp_path / "here"
    folder.mkdir()
    installed = {name for name in importlib.metadata.packages_distributions() if name.isidentifier()}
    (tmp_path / "rankingmatch").write_text(CONSOLE)
    (tmp_path / "probe.py").write_text("import sys; print(*sys.modules)")
    probe = subprocess.run(
        [sys.executable, "-m", "probe"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
    )
    # Before any of our code, `python -m` imports these from the current directory.
    before = set(probe.stdout.decode().split())
    for name in sorted({*installed, *sys.stdlib_module_names, *OPTIONAL} - before - {"rankingmatch", "sitecustomize"}):
        (folder / f"{name}.py").write_text(RECORD.format(str(tmp_path / "executed")))
    for name in OPTIONAL[2:5]:
        (folder / f"{name}.py").unlink()
        (folder / name).mkdir()
    return folder


def run(folder: Path, *command: str, path: str = "") -> "subprocess.CompletedProcess[str]":
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": f"{source}{path}", "XDG_CACHE_HOME": str(folder.parent / "cache")}
    environment.pop("PYTHONSAFEPATH", None)
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


QUICK = ("train", "digits", "--steps", "3", "--network", "small", "--quiet", "--no-report", "--out", "run")
GRID = ("bench", "demo", "--scale", "tiny", "--set", "steps=2", "--jobs", "2", "--out", "grid")
CONSOLE = "from rankingmatch.__main__ import main; main()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "path"),
    [
        (("-m", "rankingmatch", *QUICK), ""),
        (("-m", "rankingmatch", *QUICK), os.pathsep),  # an empty entry of PYTHONPATH is the current directory
        (("../rankingmatch", *QUICK), os.pathsep),
        (("-m", "rankingmatch", *GRID), ""),
        (("-P", "-m", "torch.distributed.run", "--nproc-per-node", "1", "-m", "rankingmatch", *QUICK), ""),
    ],
    ids=["module", "empty entry", "console script", "spawned processes", "torchrun"],
)
def test_no_file_of_the_current_directory_is_imported(command: tuple[str, ...], path: str, poisoned: Path) -> None:
    done = run(poisoned, *command, path=path)
    executed = poisoned.parent / "executed"
    assert not executed.exists(), executed.read_text()
    assert done.returncode == 0, done.stderr
    assert list(poisoned.glob("run/result.json")) or list(poisoned.glob("grid/*"))


NETWORK = """
import torch
from my_layers import Head
def Plain(channels, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), Head(64 * channels, classes))
"""


@pytest.fixture
def own_network(poisoned: Path) -> Path:
    """A network in the current directory that imports its neighbor."""
    (poisoned / "my_network.py").write_text(NETWORK)
    (poisoned / "my_layers.py").write_text("from torch.nn import Linear as Head\n")
    return poisoned


OWN = ("-m", "rankingmatch", *QUICK[:5], "my_network:Plain", *QUICK[6:])


@pytest.mark.slow
def test_a_network_of_the_users_own_is_found_and_imports_its_neighbor(own_network: Path) -> None:
    done = run(own_network, *OWN)
    assert done.returncode == 0, done.stderr
    assert not (own_network.parent / "executed").exists()


@pytest.mark.slow
def test_an_import_path_in_a_file_is_used_only_if_the_user_trusts_it(own_network: Path) -> None:
    assert run(own_network, *OWN).returncode == 0
    picture(own_network / "digit.png", size=(8, 8))
    commands = {
        "predict": ("predict", "run", "digit.png"),
        "evaluate": ("evaluate", "run"),
        "report": ("report", "run"),
        "export": ("export", "run", "model.onnx"),
        "resume": ("train", "--resume", "--out", "run"),
    }
    (own_network / "my_network.py").write_text("import own_trap\n" + NETWORK)
    (own_network / "own_trap.py").write_text(RECORD.format(str(own_network.parent / "executed")))
    for name, command in commands.items():
        done = run(own_network, "-m", "rankingmatch", *command)
        assert done.returncode == 2, (name, done.stderr)
        assert "my_network:Plain" in done.stderr, name
        assert "--trust" in done.stderr, name
        assert not (own_network.parent / "executed").exists(), name
    for name in ("predict", "resume"):
        done = run(own_network, "-m", "rankingmatch", *commands[name], "--trust")
        assert done.returncode == 0, (name, done.stderr)
    again = run(own_network, "-m", "rankingmatch", "train", "--resume", "--out", "run", "--network", "my_network:Plain")
    assert again.returncode == 0, again.stderr  # the same name, given by the user


@pytest.mark.parametrize("field", ["method", "network"])
def test_a_configuration_that_names_code_is_refused_before_it_is_imported(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankingmatch.core.imports._files_are_trusted", False)
    values = resolve("digits", "fixmatch-ra", {"steps": 4}).config.to_json()
    if field == "method":
        values["method"] = "trap:Method"
    else:
        values["network"]["network"] = "trap:make"
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises((RunError, ConfigError), match=r"trap:.*code that would be run"):
        Run(tmp_path).config()
