"""Several processes, started as users start them."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def environment(**more: str) -> dict[str, str]:
    """The environment variables, with the modules of the tests in reach."""
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **more}


def torchrun(processes: int, *command: str | Path, restarts: int = 0, cwd: Path = TESTS) -> "subprocess.Popen[str]":
    """`torchrun -m COMMAND…`."""
    options = ["--standalone", "--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *options, "-m", *map(str, command)],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
