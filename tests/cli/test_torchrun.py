"""Several processes at one run, through torchrun, as a user would."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_folders import class_folders
from killing import history
from torchrun import torchrun

import rankingmatch
from rankingmatch.cli import main
from rankingmatch.runs.config import plan_of
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import start, training_records

pytestmark = pytest.mark.slow

STEPS = 40
QUICK = ["--steps", str(STEPS), "--batch-size", "8", "--mu", "2", "--network", "own_network:GroupNormNetwork"]
QUICK += ["--method", "fixmatch-cta", "--threshold", "0.3", "--threads", "1", "--evaluate-every", "4", "--no-report"]


def assert_same_history(run: Path, other: Path) -> None:
    assert [line["step"] for line in history(run)] == list(range(4, STEPS + 1, 4))
    for mine, theirs in zip(history(run), history(other), strict=True):
        assert mine.keys() == theirs.keys()
        for key in mine.keys() - {"class_shares"}:
            assert mine[key] == pytest.approx(theirs[key], abs=1e-4), key
    assert json.loads((run / "result.json").read_text())["steps"] == STEPS


@pytest.fixture(scope="module")
def of_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process, from beginning to end."""
    run = tmp_path_factory.mktemp("one") / "run"
    main(["train", "digits", *QUICK, "--quiet", "--out", str(run)])
    return run


def reached(run: Path) -> int:
    """The step of the newest checkpoint."""
    return max((int(path.stem.removeprefix("step-")) for path in run.glob("checkpoints/*.json")), default=0)


def wait_for_step(run: Path, step: int, process: Any) -> None:
    deadline = time.monotonic() + 180
    while reached(run) < step:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def worker(parent: int, rank: int) -> int:
    """The process id of one of the processes that torchrun has started."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"\nPPid:\t{parent}\n" in (path / "status").read_text()
            if mine and f"RANK={rank}".encode() in (path / "environ").read_bytes().split(b"\0"):
                return int(path.name)
        except OSError:
            continue
    raise AssertionError(f"no process of rank {rank}")


def finished(process: "subprocess.Popen[str]", code: int = 0) -> tuple[str, str]:
    """What the processes of a torchrun printed, and what they wrote to standard error."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, err
    return out, err


def test_a_run_of_two_goes_on_with_one_after_a_signal(of_one: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = torchrun(2, "rankingmatch", "train", "digits", *QUICK, "--out", run, "--checkpoint-steps", "7")
    wait_for_step(run, 7, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert err.count(f"stopped; to resume: rankingmatch train --resume --out {run}") == 1, err
    assert err.count("on 2 processes") == 1
    assert "no longer responds" not in err
    step = reached(run)
    assert 7 <= step < STEPS
    main(["train", "--resume", "--trust", "--quiet", "--no-report", "--out", str(run)])
    assert_same_history(run, of_one)


def test_a_run_of_one_goes_on_with_two(of_one: Path, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for record in training_records(start(run, plan_of(Run(of_one, trust=True).config()))):
        if record.step == 15:
            break
    process = torchrun(2, "rankingmatch", "train", "--resume", "--trust", "--json", "--no-report", "--out", run.path)
    out, _ = finished(process)
    events = [event for line in out.splitlines() if (event := json.loads(line))["event"] in ("evaluation", "result")]
    assert [event["event"] for event in events] == ["evaluation"] * 7 + ["result"], "not one process alone prints"
    assert events[0]["step"] == 16
    assert_same_history(run.path, of_one)


@pytest.mark.parametrize("rank", [0, 1])
def test_where_a_process_dies_the_other_says_so_and_the_run_can_go_on(rank: int, of_one: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = torchrun(2, "rankingmatch", "train", "digits", *QUICK, "--out", run, "--checkpoint-steps", "3")
    wait_for_step(run, 6, process)
    os.kill(worker(process.pid, rank), signal.SIGKILL)
    _, err = finished(process, 1)
    lost = f"error: process {1 - rank} of 2 stopped because another one no longer responds; start all processes again "
    # Unless torchrun, which watches both, has stopped it before it noticed.
    stopped_first = f"rank      : {1 - rank} (local_rank: {1 - rank})\n  exitcode  : -15" in err
    assert stopped_first or f"{lost}with --resume to continue from the last checkpoint\n" in err, err
    assert "]: Traceback" not in err  # torchrun has one of its own
    assert not (run / "result.json").exists()
    main(["train", "--resume", "--trust", "--quiet", "--no-report", "--out", str(run)])
    assert_same_history(run, of_one)


def test_restarted_processes_go_on_by_themselves(of_one: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["rankingmatch", "train", "digits", *QUICK, "--out", str(run), "--checkpoint-steps", "3"]
    process = torchrun(2, *command, restarts=1)
    wait_for_step(run, 6, process)
    os.kill(worker(process.pid, 1), signal.SIGKILL)
    assert ", from step " in finished(process)[1]
    assert_same_history(run, of_one)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
@pytest.mark.parametrize(("rate", "outcome"), [("0.03", "finished"), ("1e30", "failed")])
def test_no_thread_of_the_group_is_left_that_could_abort_the_exit_of_python(
    rate: str, outcome: str, tmp_path: Path
) -> None:
    process = torchrun(2, "threads_left", tmp_path / "run", rate)
    out, _ = finished(process)
    assert out.count(outcome) == 2, out
    assert out.count("thread python") >= 2, out
    assert "gloo" not in out


@pytest.mark.parametrize(
    ("flags", "words", "times"),
    [
        (["--batch-size", "1"], "error: --batch-size is 1, too few for 2 processes; start at most 1\n", 1),
        (["--network", "own_network:IdleNetwork"], "error: the network has parameters that receive no gradient", 2),
    ],
)
def test_what_several_processes_cannot_do_is_said_in_words(
    flags: list[str], words: str, times: int, tmp_path: Path
) -> None:
    _, err = torchrun(2, "rankingmatch", "train", "digits", *QUICK, *flags, cwd=tmp_path).communicate(timeout=120)
    assert err.count(words) == times, err
    assert "]: Traceback" not in err


def test_two_processes_fine_tune_on_photographs_as_one_does_and_one_writes_the_report(tmp_path: Path) -> None:
    photos = class_folders(tmp_path / "photos", each=8, size=(80, 70))
    quick = ["train", str(photos), "--labels", "6", "--image-size", "64", "--steps", "2", "--batch-size", "4"]
    quick += ["--threads", "1"]
    main([*quick, "--quiet", "--no-report", "--out", str(tmp_path / "one")])
    finished(torchrun(2, "rankingmatch", *quick, "--out", tmp_path / "two"))
    assert (tmp_path / "two/report.html").exists()
    one, two = (rankingmatch.predict(tmp_path / name, photos) for name in ("one", "two"))
    assert two.files == one.files
    # AdamW moves a weight by its learning rate, whichever sign rounding gives to a gradient near zero: weights differ
    # by up to 4e-4 after two steps at 2e-4, of values around 0.1. Predictions then differ by 2e-4.
    np.testing.assert_allclose(two.probabilities, one.probabilities, rtol=0, atol=2e-3)
