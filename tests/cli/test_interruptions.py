"""A run survives whatever happens to its process or its disk: it goes on, and ends in the same bytes.

In its long form, `RANKINGMATCH_KILLS=50 python -m pytest -s tests/cli/test_interruptions.py`, there are 50 kills at
random instants, and one before every single operation on files.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import Command, run_command
from killing import content, finish, remains, said, start

KILLS = int(os.environ.get("RANKINGMATCH_KILLS", "5"))
STEPS = 24
FEW_STEPS = 5


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], float]:
    """What an undisturbed run comes to, and how long it takes."""
    run = tmp_path_factory.mktemp("whole") / "run"
    finish(run.with_name("first"), steps=1)  # starts the server of processes
    started = time.monotonic()
    finish(run, steps=STEPS)
    return content(run), time.monotonic() - started


@pytest.fixture(scope="module")
def expected(whole: tuple[dict[str, object], float]) -> dict[str, object]:
    """What an undisturbed run comes to."""
    return whole[0]


def wait_until(met: Callable[[], bool], process: Command) -> None:
    deadline = time.monotonic() + 60
    while not met():
        assert process.exitcode is None, "the process ended too soon"
        assert time.monotonic() < deadline
        time.sleep(0.001)


def first_checkpoint(run: Path) -> Callable[[], bool]:
    return (run / "checkpoints/step-000000001.json").exists


def complaint(run: Path) -> str:
    """The one sentence of a run that stopped."""
    (line,) = said(run).splitlines()
    assert line.startswith("error: ")
    assert not list(run.rglob("*.tmp")), "something half-written was left"
    return line


# --- signals and kills ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_ends_byte_identical(
    sent: signal.Signals, expected: dict[str, object], tmp_path: Path
) -> None:
    run, metrics = tmp_path / "run", tmp_path / "run/metrics.jsonl"
    # SIGKILL leaves no time for anything, so checkpoints must be there; the others must make one when they come.
    process = start(run, "--checkpoint-steps", "3" if sent == signal.SIGKILL else "1000", steps=STEPS)
    wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") >= 2, process)
    process.kill(sent)
    process.join(60)
    assert not (run / "result.json").exists(), "the run was over before the signal came"
    if sent != signal.SIGKILL:
        assert process.exitcode == 130
        assert f"rankingmatch train --resume --out {run}" in said(run)
    reached = max(json.loads(path.read_text())["step"] for path in run.glob("checkpoints/*.json"))
    assert reached >= 3
    done = run_command("train", "--resume", "--out", run, "--json", "--no-report")
    assert done.returncode == 0, done.stderr
    begun = next(event for line in done.stdout.splitlines() if (event := json.loads(line))["event"] == "start")
    assert begun["step"] == reached, "it started anew instead of going on"
    assert content(run) == expected


@pytest.mark.slow
def test_runs_killed_at_random_instants_end_byte_identical(
    whole: tuple[dict[str, object], float], tmp_path: Path
) -> None:
    expected, seconds = whole
    draw, kills, cut_short, runs = random.Random(0), 0, 0, 0
    while kills < KILLS:
        run = tmp_path / str(runs) / "run"
        run.parent.mkdir()
        while True:
            process = start(run, steps=STEPS)
            if draw.random() < 0.5:
                process.join(draw.uniform(0, seconds))
            else:  # soon after a checkpoint is begun: an unfinished file has been seen that many times
                times, seen = draw.randrange(1, STEPS), False
                while times and process.exitcode is None:
                    before, seen = seen, any(run.glob("checkpoints/*.tmp"))
                    times -= seen and not before
                    time.sleep(0.0005)
                time.sleep(draw.uniform(0, 0.005))
            if process.exitcode is None:
                process.kill()
                process.join(60)
            if process.exitcode != -signal.SIGKILL:
                break
            kills += 1
            cut_short += remains(run)
        assert process.exitcode == 0, said(run)
        assert content(run) == expected, f"run {runs} came to something else"
        runs += 1
    print(f"\n{kills} kills, {cut_short} of them while a checkpoint was written; {runs} runs, none lost, all identical")


@pytest.mark.slow
def test_a_kill_before_any_operation_on_files_loses_nothing(tmp_path: Path) -> None:
    finish(tmp_path / "whole", steps=FEW_STEPS)
    expected = content(tmp_path / "whole")
    numbers = list(range(1000))
    if KILLS < 50:  # some of the first, while the run is created, and a whole checkpoint from the middle
        numbers = [1, 4, *range(28, 38, 2)]
    for number in numbers:
        run = tmp_path / str(number) / "run"
        run.parent.mkdir()
        process = start(run, steps=FEW_STEPS, kill_at=number)
        process.join(120)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL, said(run)
        finish(run, steps=FEW_STEPS)
        assert content(run) == expected, f"killed before operation {number}"
    assert number >= 36, "the run has fewer operations than that"
    print(f"\nkilled before {min(number, len(numbers))} operations on files, one by one: none lost, all identical")


# --- disks that are full or read-only, and two processes at once ---------------------------------------------


@contextlib.contextmanager
def mounted(place: Path, *arguments: str) -> Iterator[None]:
    """A file system for the time being; where mounting is not allowed, the test is skipped and says so."""
    place.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", *arguments, str(place)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.slow
def test_a_disk_that_fills_up_stops_the_run_and_room_lets_it_go_on(expected: dict[str, object], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "-t", "tmpfs", "-o", "size=6m", "tmpfs"):
        run = disk / "run"
        process = start(run, steps=STEPS, place=tmp_path)
        wait_until(first_checkpoint(run), process)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(2**16))
        process.join(120)
        assert process.exitcode == 2, "the run was over too soon"
        assert f"{run} cannot be written (No space left on device); free some space" in complaint(disk)
        (disk / "filler").unlink()
        finish(run, steps=STEPS)
        assert content(run) == expected


@pytest.mark.slow
def test_a_file_that_cannot_grow_stops_the_run_with_a_sentence(expected: dict[str, object], tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, steps=STEPS, file_limit=20_000)  # room for configuration and history, not for a checkpoint
    process.join(120)
    assert process.exitcode == 2
    assert f"{run} cannot be written (File too large); free some space" in complaint(run)
    assert f"rankingmatch train --resume --out {run}" in complaint(run)
    finish(run, steps=STEPS)
    assert content(run) == expected


@pytest.mark.slow
def test_a_run_directory_that_becomes_read_only_stops_the_run(expected: dict[str, object], tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, steps=STEPS)
    wait_until(first_checkpoint(run), process)
    with contextlib.ExitStack() as stack:
        if os.getuid() == 0:  # whom no permission keeps from writing
            stack.enter_context(mounted(run, "--bind", str(run)))
            subprocess.run(["mount", "-o", "remount,bind,ro", str(run)], check=True)
        else:
            for place in (run, run / "checkpoints"):
                place.chmod(0o555)
                stack.callback(place.chmod, 0o755)
        process.join(120)
        assert process.exitcode == 2, "the run was over too soon"
        sentence = complaint(run)
    assert f"{run} cannot be written (" in sentence
    assert "make it writable, and resume the run; to resume: rankingmatch train --resume" in sentence
    finish(run, steps=STEPS)
    assert content(run) == expected


@pytest.mark.slow
def test_of_two_processes_started_at_once_one_refuses(expected: dict[str, object], tmp_path: Path) -> None:
    run = tmp_path / "run"
    processes = {seed: start(run, "--seed", str(seed), steps=STEPS) for seed in (0, 1)}
    for process in processes.values():
        process.join(120)
    codes = {seed: process.exitcode for seed, process in processes.items()}
    assert {*codes.values()} == {0, 2}, said(run)
    # By how much one process is later than the other decides what it finds: a lock, a run, or a finished run.
    answers = ("in use by another process", "already holds a run", "with other settings", "the run was started with")
    assert any(answer in complaint(run) for answer in answers), said(run)
    if codes[0] == 0:
        assert content(run) == expected
