"""The format number of every kind of file that we write, and the version of the source code that writes it.

A change that an older version could not read gets the next number. A file without a number has format 1: it was
written before files had numbers.
"""

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rankingmatch.core.errors import RunError

FORMATS = {
    "config": 2,  # 2: `licence` became `license`
    "split": 2,  # 2: the unlabeled images, if some are left out
    "metrics": 1,  # each line of metrics.jsonl, and each event that a command prints as JSON
    "result": 2,  # 2: balanced errors, and the recall of each class
    "checkpoint": 3,  # 2: CTAugment's rates by the name of the operation; 3: learned labels as a module of the method
    "model": 3,  # 2: whether images are cropped or squeezed to the shape; 3: how files are read
}


def check_format(kind: str, values: Mapping[str, Any], path: Path) -> None:
    """Raise RunError if a file was written by a newer version of this package than the one that reads it."""
    found = values.get("format", 1)
    if type(found) is not int or found < 1:
        raise RunError(f"{path}: format is {found!r}; it must be a positive number, or the file is damaged")
    if found > FORMATS[kind]:
        raise RunError(
            f"{path} was written by a newer version of rankingmatch (format {found}; this version reads up to "
            f"{FORMATS[kind]}); upgrade rankingmatch to use it"
        )


@cache
def source_commit() -> str:
    """The first 12 digits of the commit of the source code, with "+" if files have changed since.

    "" if it is not in a Git repository.
    """
    source = Path(__file__).resolve().parents[1]
    if not (source.parents[1] / ".git").exists():  # installed, perhaps inside somebody else's repository
        return ""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", source, *words], capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = git("rev-parse", "HEAD")[:12]
        return commit + ("+" if commit and git("status", "-s", ".") else "")
    except (OSError, subprocess.TimeoutExpired):
        return ""
