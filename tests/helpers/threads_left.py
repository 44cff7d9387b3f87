"""Train on the processes of torchrun, and print which threads of the system are left: `threads_left RUN RATE`."""

import gc
import sys
from pathlib import Path
from typing import Any

import rankingmatch


def print_threads(outcome: str) -> None:
    print(outcome)
    for thread in Path("/proc/self/task").iterdir():
        print("thread", (thread / "comm").read_text().strip())


if __name__ == "__main__":
    gc.disable()  # what is left is not left by chance
    quick: dict[str, Any] = {"steps": 20, "batch_size": 4, "mu": 1, "threads": 1, "learning_rate": float(sys.argv[2])}
    try:
        rankingmatch.train("digits", method="fixmatch-ra", out=sys.argv[1], report=False, **quick)
    except (rankingmatch.DivergedError, SystemExit):  # as the first process sees it, and as the others do
        print_threads("failed")
    else:
        print_threads("finished")
