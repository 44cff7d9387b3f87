"""A run survives whatever happens to its process: it goes on, and ends in the same bytes.

In its long form, `RANKINGMATCH_KILLS=50 python -m pytest -s tests/cli/test_crashes.py`, there are 50 kills at random
instants, and one before every single operation on files.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from command import Command
from killing import content, finish, remains, said, start

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("RANKINGMATCH_KILLS", "5"))
STEPS = 12
FEW_STEPS = 5


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], float]:
    """What an uninterrupted run comes to, and how long it takes."""
    run = tmp_path_factory.mktemp("whole") / "run"
    finish(run.with_name("first"), steps=1)  # starts the server of processes
    started = time.monotonic()
    finish(run, steps=STEPS)
    return content(run), time.monotonic() - started


def wait_for_writing(run: Path, process: Command, times: int) -> None:
    """Until an unfinished file has been seen among the checkpoints that many times, or the process ends."""
    seen = False
    while times and process.exitcode is None:
        before, seen = seen, any(run.glob("checkpoints/*.tmp"))
        times -= seen and not before
        time.sleep(0.0005)


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
            else:  # soon after a checkpoint is begun
                wait_for_writing(run, process, draw.randrange(1, STEPS))
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
