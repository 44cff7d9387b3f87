"""Train on the processes of torchrun, and print which threads of the system are left: `threads_left RUN`."""

import sys
from pathlib import Path

import rankingmatch

if __name__ == "__main__":
    rankingmatch.train(
        "digits", method="fixmatch-ra", out=sys.argv[1], report=False, steps=2, batch_size=4, mu=1, threads=1
    )
    for thread in Path("/proc/self/task").iterdir():
        print("thread", (thread / "comm").read_text().strip())
