"""Settings of the whole suite: one thread per process, its own cache, and a count of the slow tests left out."""

import atexit
import os
import shutil
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: the same numbers everywhere, safe on a busy machine

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share the cache of the process that started them
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="rankingmatch-cache-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

_DESELECTED_SLOW = pytest.StashKey[int]()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count the slow tests that `-m "not slow"` leaves out."""
    if items and items[0].config.option.markexpr:
        slow = sum(item.get_closest_marker("slow") is not None for item in items)
        items[0].config.stash[_DESELECTED_SLOW] = items[0].config.stash.get(_DESELECTED_SLOW, 0) + slow


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands its count to the controller, which collects no tests itself."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["deselected_slow"] = session.config.stash.get(_DESELECTED_SLOW, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take a worker's count; every worker collects all the tests, so the counts are the same."""
    count = getattr(node, "workeroutput", {}).get("deselected_slow", 0)
    node.config.stash[_DESELECTED_SLOW] = max(count, node.config.stash.get(_DESELECTED_SLOW, 0))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say at the end what was left out."""
    if count := terminalreporter.config.stash.get(_DESELECTED_SLOW, 0):
        terminalreporter.write_line(f"{count} slow tests were not run; make test-all runs them, too")


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
