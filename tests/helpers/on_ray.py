"""Tests on a Ray cluster of this machine alone."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

# Ray lowers the priority of its workers (nice 15); on a busy machine they would hardly get on.
os.environ.setdefault("RAY_worker_niceness", "0")


def needs_ray(test: Any) -> Any:
    """Marks a test as slow; it is skipped without Ray."""
    missing = importlib.util.find_spec("ray") is None
    return pytest.mark.slow(pytest.mark.skipif(missing, reason="pip install 'rankingmatch[ray]'")(test))


def is_ours(process: int) -> bool:
    """Whether this process is among its ancestors."""
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
        if process == os.getpid():
            return True
    return False
