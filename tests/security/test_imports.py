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
    # Before any of our code, `python -m` imports these from the current directory.
    before = set(run(folder, "-m", "probe", path=f"{os.pathsep}{tmp_path}").stdout.split())
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


OWN = ("-m", "rankingmatch", *QUICK[:5], "my_network:Plain", *QUICK[6:])


@pytest.mark.slow
def test_an_import_path_in_a_file_is_used_only_if_the_user_trusts_it(poisoned: Path) -> None:
    executed = poisoned.parent / "executed"
    (poisoned / "my_network.py").write_text(NETWORK)
    (poisoned / "my_layers.py").write_text("from torch.nn import Linear as Head\n")
    done = run(poisoned, *OWN)  # a network of the user's own is found, and imports its neighbor
    assert (done.returncode, executed.exists()) == (0, False), done.stderr
    picture(poisoned / "digit.png", size=(8, 8))
    commands = {
        "predict": ("predict", "run", "digit.png"),
        "evaluate": ("evaluate", "run"),
        "report": ("report", "run"),
        "export": ("export", "run", "model.onnx"),
        "resume": ("train", "--resume", "--out", "run"),
    }
    (poisoned / "my_network.py").write_text("import own_trap\n" + NETWORK)
    (poisoned / "own_trap.py").write_text(RECORD.format(str(executed)))
    for name, command in commands.items():
        done = run(poisoned, "-m", "rankingmatch", *command)
        assert done.returncode == 2, (name, done.stderr)
        assert "my_network:Plain" in done.stderr, name
        assert "--trust" in done.stderr, name
        assert not executed.exists(), name
    given = ("--network", "my_network:Plain")  # the same name, given by the user
    for command in (("predict", "--trust"), ("resume", "--trust"), ("resume", *given)):
        done = run(poisoned, "-m", "rankingmatch", *commands[command[0]], *command[1:])
        assert done.returncode == 0, (command, done.stderr)


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
