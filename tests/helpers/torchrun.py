"""Several processes, started as users start them."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def torchrun(processes: int, *command: str | Path, restarts: int = 0, cwd: Path = TESTS) -> "subprocess.Popen[str]":
    """`torchrun -m COMMAND…`, with the modules of the tests in reach."""
    options = ["--standalone", "--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *options, "-m", *map(str, command)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
