"""Training processes that are started without delay, to be killed, starved or raced."""

import json
import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from command import Command

QUICK = ["--batch-size", "8", "--mu", "2", "--network", "wrn-10-1", "--threads", "1", "--evaluate-every", "4"]
QUICK += ["--checkpoint-steps", "1", "--no-report", "--quiet"]


def start(
    run: Path, *more: str, steps: int, kill_at: int = -1, file_limit: int = 0, place: Path | None = None
) -> Command:
    """Train into `run`, or resume there; standard error goes into a file in `place`, else beside the run."""
    arguments = ["train", "digits", *QUICK, "--steps", str(steps), "--out", str(run), "--resume", *more]
    stderr = (place or run.parent) / "stderr"
    return Command(*arguments, stderr=stderr, prepare=partial(_prepare, run, kill_at, file_limit))


def finish(run: Path, *more: str, steps: int) -> None:
    """Train or go on to the end, undisturbed."""
    process = start(run, *more, steps=steps)
    process.join(300)
    assert process.exitcode == 0, said(run)


def said(run: Path) -> str:
    """What the processes of a run wrote to standard error, all of them."""
    return (run.parent / "stderr").read_text()


def history(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without the times and the memory that they took."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    costs = ("seconds", "images_per_second", "step_seconds", "memory")
    return [{key: value for key, value in line.items() if key not in costs} for line in lines]


def content(run: Path) -> dict[str, object]:
    """What must be the same, however often a run was interrupted."""
    return {**{path.name: path.read_bytes() for path in run.glob("*.safetensors")}, "metrics": history(run)}


def _prepare(run: Path, kill_at: int, file_limit: int) -> None:
    if kill_at >= 0:
        _die_at_operation(kill_at, run)
    if file_limit:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit is then an error like a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))


def _die_at_operation(number: int, run: Path) -> None:
    """SIGKILL for this process before its operation of that number on the files of the run."""
    left = [number]
    fsync = os.fsync

    def count() -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted_fsync(fd: Any) -> None:
        count()
        fsync(fd)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("os.rename", "os.remove", "os.mkdir"):
            path, writing = arguments[0], True
        elif event == "open":
            path, writing = arguments[0], bool(int(str(arguments[2])) & (os.O_WRONLY | os.O_RDWR))
        else:
            return
        if writing and isinstance(path, str | os.PathLike) and str(path).startswith(str(run)):
            count()

    os.fsync = counted_fsync
    sys.addaudithook(hook)


def remains(run: Path) -> bool:
    """Whether something in the checkpoints shows that writing one was cut short."""
    names = [path.name for path in (run / "checkpoints").glob("*")]
    steps = {name.split(".")[0] for name in names}
    return len(names) != 2 * len(steps) or len(steps) > 2 or any(name.endswith(".tmp") for name in names)
