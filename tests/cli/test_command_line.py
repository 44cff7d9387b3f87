"""Through the command line, as a user would."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from command import run_command
from filelock import FileLock
from image_folders import digit_files
from killing import content
from safetensors.torch import load_file

from rankingmatch.cli import main
from rankingmatch.runs.config import all_option_names

QUICK = ["--steps", "40", "--batch-size", "8", "--mu", "2", "--network", "wrn-10-1", "--threads", "1"]
QUICK += ["--evaluate-every", "4", "--no-report"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that went through without interruption."""
    run = tmp_path_factory.mktemp("finished") / "run"
    main(["train", "digits", *QUICK, "--quiet", "--out", str(run)])
    return run


# --- train ---------------------------------------------------------------------------------------------------


def test_a_run_directory_holds_what_the_design_says(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {"config.json", "metrics.jsonl", "result.json", "model.safetensors", "checkpoints", "split.json"} <= names
    assert len(json.loads((finished / "split.json").read_text())["labeled"]) == 40
    result = json.loads((finished / "result.json").read_text())
    assert (result["method"], result["labels"], result["seed"], result["steps"]) == ("rankingmatch-bm", 40, 0, 40)
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(4, 41, 4))
    assert lines[-1]["test_error"] == result["test_error"]
    assert 0 <= result["test_error"] <= 100
    config = json.loads((finished / "config.json").read_text())
    assert config["training"]["mu"] == 2
    assert config["hyperparameters"]["threshold"] == 0.95


def test_plain_lines_when_not_a_terminal(tmp_path: Path) -> None:
    done = run_command("train", "digits", *QUICK, "--steps", "4", cwd=tmp_path)
    assert done.returncode == 0
    assert "\x1b" not in done.stderr + done.stdout
    step = next(line for line in done.stderr.splitlines() if line.startswith("step 4/4"))
    for word in ("labeled_ce", "unlabeled_rank", "confident", "val error", "test error", "images/s", "0:00 left"):
        assert word in step
    assert "test error" in done.stdout
    assert all(f"rankingmatch {use} runs/digits-40-rankingmatch-bm-0" in done.stdout for use in ("predict", "export"))


def test_json_lines_are_json_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankingmatch.runs.display.SECONDS_BETWEEN_EVENTS", 0.0)
    folder = digit_files(tmp_path / "digits")
    main(["train", str(folder), "--json", *QUICK, "--steps", "8", "--out", str(tmp_path / "run")])
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    loading = [event for event in events if event["event"] == "loading"]
    assert loading[-1]["done"] == loading[-1]["total"]
    begun, *steps, evaluation, result = (event for event in events if event["event"] != "loading")
    assert (begun["event"], begun["steps"], begun["test"]) == ("start", 8, 50)
    assert [(event["event"], event["step"]) for event in (*steps, evaluation)] == [
        ("evaluation" if step in (4, 8) else "step", step) for step in range(1, 9)
    ]
    assert (result["event"], result["test_error"]) == ("result", evaluation["test_error"])


@pytest.mark.parametrize("rate", ["1e5", "1e30"])
def test_a_diverging_run_is_recorded_with_its_step(
    rate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    run = tmp_path / "run"
    with pytest.raises(SystemExit) as left:
        main(["train", "digits", *QUICK, "--learning-rate", rate, "--out", str(run), "--checkpoint-steps", "1"])
    assert left.value.code == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: training diverged")
    assert "--learning-rate" in last
    saved = list(run.rglob("*.safetensors"))
    assert saved
    for path in saved:
        weights = {name: value for name, value in load_file(path).items() if not name.startswith("momentum.")}
        assert all(torch.isfinite(value).all() for value in weights.values()), f"{path} holds a sick state"
    assert "diverged" in refused("evaluate", run)
    result = json.loads((run / "result.json").read_text())
    assert result["diverged_at"] >= 0
    assert result["test_error"] is None


# --- evaluate, methods, datasets, bench, help ----------------------------------------------------------------


def test_evaluate_agrees_with_training(
    finished: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    main(["evaluate", str(finished), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["test_error"] == pytest.approx(json.loads((finished / "result.json").read_text())["test_error"])
    assert sum(map(sum, report["confusion"])) == report["images"] == 360
    main(["evaluate", str(finished), "--best"])
    assert "most often predicted as" in capsys.readouterr().out
    for command in ("evaluate", "predict"):
        assert "empty" in refused(command, finished, "", "--json")


def test_methods_and_datasets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["methods", "--json"])
    rows = {row["method"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["rankingmatch-bm"]["ranking loss"] == "BatchMean triplet"
    assert rows["rankingmatch-ct"]["hyperparameters"]["temperature"] == 0.2
    assert "margin" not in rows["rankingmatch-ct"]["hyperparameters"]
    assert (rows["comatch"]["reference"], rows["comatch"]["views"]) == ("Li 2021", "weak, strong")
    main(["datasets"])
    assert "digits" in capsys.readouterr().out


def test_help_needs_no_torch(tmp_path: Path) -> None:
    program = "import atexit, sys; from rankingmatch.__main__ import main\n"
    program += "atexit.register(lambda: print({'torch', 'numpy'} & {*sys.modules}))\nmain(['--help'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
    for command in ("train", "evaluate", "report", "methods", "datasets", "bench"):
        assert f"  {command}" in done.stdout


def test_every_hyper_parameter_is_a_flag_whose_help_names_the_symbol(capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert all("--" + name.replace("_", "-") in words for name in all_option_names())
    symbols = {"batch-size": "B:", "mu": "μ:", "learning-rate": "η:", "steps": "S:", "threshold": "τ:", "margin": "m:"}
    symbols |= {"temperature": "T:", "unlabeled-weight": "λ_u:", "ranking-weight": "λ_r:"}
    for name, symbol in symbols.items():
        assert symbol in words[words.index(f"--{name}") :][:60], name


# --- bad input -----------------------------------------------------------------------------------------------

# What is typed, and what the answer names: the option with its value, or the file, and what would be right.
MISTAKES = {
    "train": ["a dataset's name or a folder"],
    "train --resume": ["--out"],
    "bench": ["demo", "digits"],
    "train digits --split nowhere.json": ["--split", "nowhere.json"],
    "train digits --split some.json --labels 40": ["--split", "--labels"],
    "trian": ["'trian'", "'train'"],
    "train photos/catz": ["photos/catz"],
    "train digitz": ["'digitz'", "'digits'"],
    "train digits --method rankingmatch": ["'rankingmatch'", "'rankingmatch-bm'"],
    "train digits --network wrn-28-two": ["'wrn-28-two'", "'wrn-28-2'"],
    "train digits --network wrn-27-2": ["'wrn-27-2'", "6n + 4"],
    "train digits --network wrn-28-0": ["'wrn-28-0'", "width"],
    "train digits --labels 5000": ["--labels is 5000", "1300"],
    "train digits --labels 9": ["--labels is 9", "10 classes"],
    "train digits --threshold 0": ["--threshold is 0.0", "(0, 1]"],
    "train digits --batch-size 0": ["--batch-size is 0", "[1, 65536]"],
    "train digits --batch-size many": ["--batch-size", "'many'"],
    "train digits --method supervised --margin 1": ["--margin", "'supervised'"],
    "train digits --epochs 1 --steps 2": ["--epochs", "--steps"],
    "train digits --minutes 5 --steps 2": ["--minutes", "--steps"],
    "train digits --bank-on rya": ["--bank-on", "'ray'"],
    "train digits --ray-address head:6379": ["--ray-address needs --bank-on ray"],
    "train digits --treshold 0.9": ["--treshold", "--threshold"],
    "train digits --device abacus": ["--device abacus"],
    "predict run x.png --ray-address head:6379": ["--ray-address needs --on ray"],
    "train digits --method ./own.py:Method": ["./own.py:Method"],
    "train digits --method own_broken:Raises": ["own_broken:Raises", "ZeroDivisionError"],
    "train digits --method own_methods:NoDataclass": ["own_methods:NoDataclass", "@dataclass(eq=False)"],
    "train digits --method own_methods:Unhashable": ["own_methods:Unhashable", "@dataclass(eq=False)"],
    "train digits --method own_methods:UnknownView": ["'stronk'", "'strong'"],
    "train digits --method own_methods:Clash": ["'momentum'"],
    "train digits --network own_network:raises": ["own_network:raises", "RuntimeError: no"],
    "train digits --network own_network:linear_network --rank-on features": ["--rank-on", "logits only"],
    "train digits --network own_network:wrong_classes": ["own_network:wrong_classes", "(n, 10)"],
    "train digits --network own_network:larger_images": ["own_network:larger_images", "8×8×1"],
    "doctor --device cuda:7": ["--device cuda:7"],
    "evaluate nowhere": ["nowhere"],
    "report": ["run directory"],
    "report nowhere": ["nowhere"],
    "report . --out nowhere/page.html": ["--out nowhere/page.html", "directory nowhere"],
    "report . --out .": ["--out .", "directory"],
    "report . --figures nowhere/figures": ["--figures nowhere/figures", "directory nowhere"],
    "bench table99": ["'table99'"],
    "bench none.toml": ["none.toml"],
    "bench digits --scale tinny": ["'tinny'", "'tiny'"],
    "bench digits --set steps": ["--set steps", "OPTION=VALUE"],
    "bench digits --set stepz=4": ["'stepz'", "'steps'"],
    "bench digits --set steps=many": ["--steps is 'many'", "int"],
    "bench digits --set seed=4": ["--seed"],
    "bench demo --cpus-per-run 2": ["--cpus-per-run"],
    "bench demo --ray-address head:6379": ["--ray-address"],
    "bench demo --jobs 2 --on ray": ["--jobs"],
    "bench digits --markdown nowhere/t.md": ["--markdown nowhere/t.md", "directory nowhere"],
}
# An empty path must never mean the current directory.
MISTAKES |= {
    f"{command} ''": ["empty"]
    for command in (
        *("train", "evaluate", "predict ''", "export run", "report", "label", "train --resume --out"),
        *(f"train digits {flag}" for flag in ("--unlabeled", "--labels-csv", "--split", "--weights", "--data-dir")),
        *("train digits --out", "predict run images --out", "predict run images --sort-into", "report run --figures"),
        *("bench demo --out", "bench demo --keep", "bench demo --data"),
    )
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_answered_in_one_line_that_names_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused(*shlex.split(command))
    assert [named for named in MISTAKES[command] if named not in line] == [], line
    assert list(tmp_path.iterdir()) == [], "nothing may be left behind"


# --- directories of runs -------------------------------------------------------------------------------------


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, to be damaged."""
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


def test_an_output_directory_that_is_not_free_is_refused(
    copy: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").write_text("meow")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for out, why in (("copy", "already"), ("file/run", "Not a directory"), ("photos", "not empty")):
        line = refused("train", "digits", *QUICK, "--out", tmp_path / out)
        assert str(tmp_path / out) in line
        assert why in line
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    (copy / "config.json").unlink()  # what is left of another run is not taken for a new one
    assert "config.json" in refused("train", "digits", *QUICK, "--out", copy)


def test_a_resume_refuses_what_it_cannot_continue(copy: Path, refused: Callable[..., str]) -> None:
    for option, value in (("--threads", "-3"), ("--checkpoint-steps", "0"), ("--checkpoint-seconds", "nan")):
        assert f"{option} is {value}" in refused("train", "--resume", "--out", copy, option, value)
    (copy / "result.json").unlink()
    with FileLock(copy / ".lock"):
        assert "in use" in refused("train", "--resume", "--out", copy)
    history = copy / "metrics.jsonl"
    good = history.read_text()
    for bad in ("{}", "garbage", '{"step": "x"}', '{"step": 1, "who": "me"}', "\x00"):
        history.write_text(good.replace("\n", f"\n{bad}\n", 1))
        assert re.search("metrics.jsonl.*line 2", refused("train", "--resume", "--out", copy))
    history.write_text(good)
    for path in (copy / "checkpoints").glob("*.json"):
        path.write_text("null")
    assert "checkpoint" in refused("train", "--resume", "--out", copy)  # instead of starting anew


def test_a_finished_run_says_its_result_again_and_writes_a_deleted_model(
    copy: Path, refused: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(copy)
    (copy / "model.safetensors").unlink()
    main(["train", "--resume", "--no-report", "--out", str(copy)])
    assert "test error" in capsys.readouterr().out
    assert content(copy) == before
    (copy / "best.safetensors").unlink()
    assert "best.safetensors" in refused("evaluate", "--best", copy)
