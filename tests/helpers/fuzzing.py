"""Damaged files for every reader, in a process that may neither use much memory nor take long nor run anything.

A file is a function of its kind and its number: `run(["zip"], 4711, 1)` tries that one again.
"""

import dataclasses
import faulthandler
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import typing
import warnings
from pathlib import Path
from typing import Any

import torch
from fuzz_targets import TARGETS, Target
from limits import limit_addresses
from mutations import mutated
from torchrun import environment

from rankingmatch.core.devices import peak_memory, reset_peak_memory
from rankingmatch.core.errors import RankingMatchError
from rankingmatch.data.decode import UnreadableError

CPU = torch.device("cpu")
SECONDS = 5  # for one file
MEMORY = 2**30  # bytes: of addresses beyond those of a process that has everything loaded, and of resident memory
RUNNING: tuple[str, ...] = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.spawn", "exec")
RUNNING += ("subprocess.Popen", "ctypes.dlopen", "pickle.find_class", "marshal.loads", "socket.")
CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.link", "os.symlink", "os.truncate")
CHATTER = ("TIFF", "LZW", "tempfile.tif", "Estimate", "Missing", "Fax3", "Old", "JPEGLib", "ZIP", "_TIFF")  # of libtiff
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MACHINERY = ("<frozen importlib", typing.__file__, dataclasses.__file__, os.path.dirname(torch.__file__))  # noqa: PTH120


class ForbiddenError(BaseException):
    """A file made the reader do something that reading does not need; no reader can catch it."""


def forbid_all_but_reading(place: Path) -> None:
    """From now on, nothing is run, sent, or written or removed outside of `place`."""

    def inside(path: Any) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith((str(place), "/proc/self/"))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":  # an open file was checked when it was opened, by name
            bad = arguments[2] & WRITING and not isinstance(arguments[0], int) and not inside(arguments[0])
        elif event in CHANGING:  # a name relative to an open directory comes from a loop over one inside
            bad = not inside(arguments[0]) and arguments[-1] == -1
        else:
            # Python's and torch's own machinery (imports, type hints) makes code from their own texts.
            bad = event.startswith(RUNNING) and not sys._getframe(1).f_code.co_filename.startswith(MACHINERY)
        if bad:
            raise ForbiddenError(f"{event} {arguments!r:.200}")

    sys.addaudithook(hook)


def try_files(kind: str, target: Target, first: int, count: int, place: Path) -> bool:
    """Damage, read, repeat, and print what came of it; whether only errors of the project's own did."""
    seeds = [content for _, content in target.seeds]
    readable, slowest, failures = 0, 0.0, []
    os.environ["XDG_CACHE_HOME"] = str(place / "cache")
    reset_peak_memory(CPU)
    begun = time.perf_counter()
    for number in range(first, first + count):
        draw = random.Random(f"{kind} {number}")
        path, content = draw.choice(target.seeds)
        damaged = mutated(content, seeds, draw)
        (place / "number").write_text(str(number))
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        started = time.perf_counter()
        try:
            target.read(path, damaged)
            readable += 1
        except (RankingMatchError, UnreadableError):
            pass
        except (Exception, ForbiddenError) as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            words = f"{kind} {number}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})"
            failures.append(" ".join(words.split())[:400])
        faulthandler.cancel_dump_traceback_later()
        slowest = max(slowest, time.perf_counter() - started)
    memory = peak_memory(CPU)
    for line in failures[:20]:
        print(f"FAILED {line}")
    print(
        f"{kind}: {count:,} files, {readable:,} of them still readable, {len(failures)} failures, slowest "
        f"{slowest:.2f} s, peak memory of the process {memory / 2**20:.0f} MB, {time.perf_counter() - begun:.0f} s",
        flush=True,
    )
    return not failures and memory <= MEMORY


def child(kinds: list[str], first: int, count: int, place: Path) -> int:
    """All of it in this process; a line for each kind and each failure."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    targets = {}
    for kind in kinds:
        (place / kind).mkdir()
        os.environ["XDG_CACHE_HOME"] = str(place / kind / "cache")
        targets[kind] = TARGETS[kind](place / kind)
        for path, content in targets[kind].seeds:  # which also imports whatever reading them needs
            targets[kind].read(path, content)
    limit_addresses(MEMORY)
    forbid_all_but_reading(place)
    good = True
    for kind, target in targets.items():
        good = try_files(kind, target, first, count, place / kind) and good
        shutil.rmtree(place / kind, ignore_errors=True)
    return int(not good)


def run(kinds: list[str], first: int, count: int) -> tuple[int, str]:
    """The child's exit code and words; a hang or a crash names the file."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        command = [sys.executable, __file__, place, str(first), str(count), *kinds]
        variables = environment(OMP_NUM_THREADS="1")
        done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith(CHATTER))
        if done.returncode not in (0, 1) or "Timeout (" in said:
            at = [f"{path.parent.name} {path.read_text()}" for path in Path(place).glob("*/number")]
            said += f"\nthe process ended with {done.returncode} at file {at}"
        return done.returncode, said


if __name__ == "__main__":
    folder, start, files, *names = sys.argv[1:]
    sys.exit(child(names, int(start), int(files), Path(folder)))
