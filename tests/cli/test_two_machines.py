"""A run on two machines, connected by a network alone, of which one dies."""

import time
from pathlib import Path

import pytest
from namespaces import Machine, two_machines

pytestmark = pytest.mark.slow

STEPS = 60
QUICK = ["--steps", str(STEPS), "--batch-size", "8", "--mu", "2", "--network", "wrn-10-1", "--threads", "1"]
QUICK += ["--method", "rankingmatch-bm", "--threshold", "0.3", "--evaluate-every", "20", "--checkpoint-steps", "3"]
QUICK += ["--no-report", "--resume"]
ALONE = "stopped because another one no longer responds; start all processes again with --resume"


def train(run: Path, machines: tuple[Machine, Machine], steps_until_kill: int | None = None) -> list[str]:
    """Train on both machines, and kill the second one after a checkpoint; what each of them wrote."""
    logs = [run.with_name(f"{run.name}-{machine.name}.log") for machine in machines]
    command: list[str | Path] = ["rankingmatch", "train", "digits", *QUICK, "--out", run]
    started = [machine.start(*command, first=machines[0], log=log) for machine, log in zip(machines, logs, strict=True)]
    deadline = time.monotonic() + 180
    if steps_until_kill is not None:
        while not any((run / "checkpoints").glob("step-*.json")) or latest(run) < steps_until_kill:
            assert started[0].poll() is None, logs[0].read_text()
            assert time.monotonic() < deadline, [log.read_text() for log in logs]
            time.sleep(0.005)
        machines[1].kill()
    for process in started:
        process.wait(deadline - time.monotonic())
    codes = [process.returncode for process in started]
    assert (codes == [0, 0]) == (steps_until_kill is None), (codes, [log.read_text() for log in logs])
    return [log.read_text() for log in logs]


def latest(run: Path) -> int:
    """The step of the newest checkpoint."""
    return max(int(path.stem.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*.json"))


def test_a_run_of_two_machines_of_which_one_dies_resumes_to_the_same_model(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    with two_machines() as machines:
        first, second = train(whole, machines)
        assert "on 2 processes" in first
        assert "on 2 processes" not in second  # the first process alone prints
        assert f"process 0 of 2 {ALONE}" in train(broken, machines, steps_until_kill=6)[0]
        assert 6 <= latest(broken) < STEPS
        assert not (broken / "result.json").exists()
        assert ", from step " in train(broken, machines)[0]
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
