"""Small things that a newcomer meets: words before and after a run, colours, completion, a card, lines to install."""

import json
import os
import pty
import re
import select
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Command, run_command
from image_folders import picture

from rankingmatch import __version__
from rankingmatch.cli import main

QUICK = ["--steps", "6", "--batch-size", "8", "--mu", "1", "--network", "wrn-10-1", "--threads", "1", "--no-report"]
COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-9][0-9;]*m")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("courtesies") / "run"
    main(["train", "digits", *QUICK, "--out", str(path), "--quiet", "--license", "CC0: for | all"])
    return path


def on_a_terminal(*arguments: str | Path, **variables: str) -> bytes:
    """What a command writes to standard error if that is a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "", "TERM": "xterm-256color", **variables}
    process = Command(*arguments, env=environment, stderr=Path(os.ttyname(theirs)))
    shown = b""
    while process.exitcode is None or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.05)[0]:
            shown += os.read(ours, 1 << 16)
    os.close(ours)
    os.close(theirs)
    assert process.exitcode == 0, shown.decode()
    return shown


# --- before and after a run ----------------------------------------------------------------------------------


def test_a_log_is_not_silent_between_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = ["--steps", "6", "--evaluate-every", "6", "--log-every", "1"]
    for name, patience in (("patient", 1000.0), ("impatient", 0.0)):
        monkeypatch.setattr("rankingmatch.runs.display.SECONDS_BETWEEN_LINES", patience)
        main(["train", "digits", "--method", "supervised", *QUICK, *steps, "--out", str(tmp_path / name)])
    lines = [line.split(" ")[1] for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    assert lines == ["6/6", "1/6", "2/6", "3/6", "4/6", "5/6", "6/6"]


def test_the_model_card_says_what_and_how(run: Path) -> None:
    _, front, body = (run / "MODEL_CARD.md").read_text().split("---\n", 2)
    assert 'license: "CC0: for | all"\n' in front  # a text in YAML, whatever is in it
    result = json.loads((run / "result.json").read_text())
    for words in (
        "# Digits: 10 classes from 40 labels",
        "rankingmatch-bm, network wrn-10-1, 6 steps of 8 labeled images, seed 0",
        f"| test error | {result['test_error']:.2f}% of 360 images |",
        f"| validation error | {result['val_error']:.2f}% of 137 images |",
        "| license | CC0: for \\| all |",
        'RankingMatchClassifier.load("model.safetensors")',
    ):
        assert words in body, words


# --- terminals -----------------------------------------------------------------------------------------------


def test_colours_are_for_terminals_that_want_them(tmp_path: Path) -> None:
    assert COLOUR.search(on_a_terminal("train", "digits", *QUICK, "--out", tmp_path / "a"))
    assert not COLOUR.search(on_a_terminal("train", "digits", *QUICK, "--out", tmp_path / "b", NO_COLOR="1"))


def test_predict_shows_a_bar_on_a_terminal_only(run: Path, tmp_path: Path) -> None:
    for number in range(5):
        picture(tmp_path / f"{number}.png")
    arguments: list[str | Path] = ["predict", run, tmp_path, "--out", tmp_path / "table.csv"]
    assert b"5/5" in on_a_terminal(*arguments)
    assert b"/5" not in on_a_terminal(*arguments, "--quiet")
    assert run_command(*arguments).stderr == f"5 images → {tmp_path / 'table.csv'}\n"


# --- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("tr", {"train"}),
        ("train digi", {"digits"}),
        ("train --method fixm", {"fixmatch-ra", "fixmatch-cta"}),
        ("train --ranking-w", {"--ranking-weight"}),
    ],
)
def test_the_shell_completes_names(typed: str, found: set[str]) -> None:
    given = {"_RANKINGMATCH_COMPLETE": "bash_complete", "COMP_WORDS": f"rankingmatch {typed}"}
    done = run_command(env={**os.environ, **given, "COMP_CWORD": str(len(typed.split()))})
    assert {line.partition(",")[2] for line in done.stdout.splitlines() if line.startswith("plain,")} == found


def test_the_module_is_the_command() -> None:
    assert run_command("--version").stdout == f"rankingmatch, version {__version__}\n"
    completion = run_command(env={**os.environ, "_RANKINGMATCH_COMPLETE": "bash_source"})
    assert "_rankingmatch_completion" in completion.stdout


# --- extras: those of timm, ONNX and TensorBoard are tested beside what they do ---------------------------------


@pytest.mark.parametrize("command", ["report", "bench"])
def test_without_matplotlib_the_line_to_install_it_is_said(
    command: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    monkeypatch.chdir(tmp_path)
    arguments: list[str | Path] = ["report", run] if command == "report" else ["bench", "demo", "--out", "bench"]
    assert "pip install 'rankingmatch[figures]'" in refused(*arguments, "--figures", "figures")
    assert not list(tmp_path.iterdir())
