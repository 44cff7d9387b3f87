"""Streams and directories that are closed, full or gone, and exhausted memory: a sentence, never a traceback."""

import re
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import surroundings
from command import Command
from image_folders import picture

from rankingmatch.cli import main

QUICK = ["--steps", "4", "--batch-size", "8", "--mu", "1", "--network", "wrn-10-1", "--threads", "1", "--no-report"]
PREDICT = ("predict", "run", "images")
GONE = "(the current directory no longer exists or cannot be read: change to another one)\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    main(["train", "digits", *QUICK, "--quiet", "--out", str(place / "run")])
    for number in range(3):
        picture(place / "images" / f"{number}.png", size=(8, 8))
    return place


@pytest.mark.parametrize(
    ("prepare", "arguments", "code", "said"),
    [
        (surroundings.without_output, PREDICT, 2, "error: standard output is closed; name a file with --out\n"),
        (surroundings.without_output, ("methods",), 0, ""),
        (surroundings.without_input, ("predict", "run", "-"), 2, "error: there are no images to predict; "),
        (surroundings.without_streams, (*PREDICT, "--out", "table.csv"), 0, ""),
        (surroundings.without_error, (*PREDICT, "nowhere", "--out", "table.csv"), 2, ""),
        (surroundings.with_full_output, ("methods",), 2, "error: No space left on device\n"),
        (surroundings.with_full_output, PREDICT, 2, "error: No space left on device\n"),
        (surroundings.with_output_nobody_reads, ("methods",), 1, ""),
        (surroundings.with_output_nobody_reads, PREDICT, 1, ""),
        (surroundings.with_ascii_output, ("methods",), 0, ""),
    ],
)
def test_closed_and_full_streams(
    prepare: Callable[[], object], arguments: tuple[str, ...], code: int, said: str, trained: Path
) -> None:
    done = Command(*arguments, cwd=trained, prepare=prepare).wait()
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == said.count("error:")
    assert not (trained / "table.csv").exists() or b"error" not in (trained / "table.csv").read_bytes()


@pytest.mark.parametrize(
    "command",
    ["train digits", "train ./photos", "predict run .", "evaluate run", "report run", "export run model.onnx"],
)
def test_in_a_deleted_directory(command: str, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    prepare = surroundings.without_current_directory
    done = Command(*command.split(), cwd=tmp_path / "gone", prepare=prepare).wait()
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.endswith(GONE)


def test_exhausted_memory_is_a_sentence(tmp_path: Path) -> None:
    large = ["--batch-size", "60000", "--network", "wrn-28-2", "--image-size", "32", "--out", "run"]
    done = Command("train", "digits", *QUICK, *large, cwd=tmp_path, prepare=surroundings.with_little_memory).wait()
    assert done.returncode == 2, done.stderr
    assert re.search("memory.*--batch-size", done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr


def test_other_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fail = Mock(side_effect=RuntimeError("a mistake of ours"))
    monkeypatch.setattr("rankingmatch.cli.printing.method_rows", fail)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        main(["methods"])
