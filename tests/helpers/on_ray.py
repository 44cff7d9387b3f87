"""Tests on a Ray cluster of this machine alone."""

import importlib.util
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Ray lowers the priority of its workers (nice 15); on a busy machine they would hardly get on.
os.environ.setdefault("RAY_worker_niceness", "0")


def needs_ray(test: Any) -> Any:
    """Marks a test as slow; it is skipped without Ray."""
    missing = importlib.util.find_spec("ray") is None
    return pytest.mark.slow(pytest.mark.skipif(missing, reason="pip install 'rankingmatch[ray]'")(test))


def dying_task(task: Callable[..., Any], calls: Path, at: tuple[int, ...]) -> Callable[..., Any]:
    """A task whose worker is killed at the end of some calls, before it can answer; a file has a byte for each call."""

    # A worker gets this function itself, as it is local to another one; it need not find a module of the tests.
    def task_of_a_worker(*arguments: Any) -> Any:
        result = task(*arguments)
        with calls.open("ab", buffering=0) as file:
            file.write(b".")
            if file.tell() in at:
                os.kill(os.getpid(), signal.SIGKILL)
        return result

    return task_of_a_worker
