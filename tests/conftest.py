"""For the whole suite: one thread per process, its own cache, and commands that are refused."""

import atexit
import os
import shutil
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: the same numbers everywhere, safe on a busy machine

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share the cache of the process that started them
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="rankingmatch-cache-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that runs a command, which must fail with one line on standard error; it returns the line."""
    from rankingmatch.cli import main

    def refuse(*arguments: str | Path) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        *before, line = err.splitlines()
        assert (left.value.code, out) == (2, ""), err
        assert line.startswith("error: ")
        assert all(text.endswith(" …") for text in before), "only what takes long may be announced"
        return line

    return refuse
