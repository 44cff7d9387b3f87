"""Disks that are full or read-only, and two processes at once: one clear sentence, and nothing is lost."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from killing import content, finish, said, start

pytestmark = pytest.mark.slow

STEPS = 24


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What an undisturbed run comes to."""
    run = tmp_path_factory.mktemp("whole") / "run"
    finish(run, steps=STEPS)
    return content(run)


def complaint(run: Path) -> str:
    """The one sentence of a run that stopped."""
    (line,) = said(run).splitlines()
    assert line.startswith("error: ")
    assert not list(run.rglob("*.tmp")), "something half-written was left"
    return line


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)


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


def test_a_disk_that_fills_up_stops_the_run_and_room_lets_it_go_on(expected: dict[str, object], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "-t", "tmpfs", "-o", "size=6m", "tmpfs"):
        run = disk / "run"
        process = start(run, steps=STEPS, place=tmp_path)
        wait_for(run / "checkpoints/step-000000001.json")
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(2**16))
        process.join(120)
        assert process.exitcode == 2, "the run was over too soon"
        assert f"{run} cannot be written (No space left on device); free some space" in said(disk)
        assert said(disk).count("\n") == 1
        assert not list(run.rglob("*.tmp")), "something half-written was left"
        (disk / "filler").unlink()
        finish(run, steps=STEPS)
        assert content(run) == expected


def test_a_file_that_cannot_grow_stops_the_run_with_a_sentence(expected: dict[str, object], tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, steps=STEPS, file_limit=20_000)  # room for configuration and history, not for a checkpoint
    process.join(120)
    assert process.exitcode == 2
    assert f"{run} cannot be written (File too large); free some space" in complaint(run)
    assert f"rankingmatch train --resume --out {run}" in complaint(run)
    finish(run, steps=STEPS)
    assert content(run) == expected


def test_a_run_directory_that_becomes_read_only_stops_the_run(expected: dict[str, object], tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run, steps=STEPS)
    wait_for(run / "checkpoints/step-000000001.json")
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


def test_of_two_processes_started_at_once_one_refuses(expected: dict[str, object], tmp_path: Path) -> None:
    run = tmp_path / "run"
    processes = {seed: start(run, "--seed", str(seed), steps=STEPS) for seed in (0, 1)}
    for process in processes.values():
        process.join(120)
    codes = {seed: process.exitcode for seed, process in processes.items()}
    assert {*codes.values()} == {0, 2}, said(run)
    # By how much one process is later than the other decides what it finds: a lock, a run, or a finished run.
    answers = ("in use by another process", "already holds a run", "with other settings")
    assert any(answer in complaint(run) for answer in answers), said(run)
    if codes[0] == 0:
        assert content(run) == expected
