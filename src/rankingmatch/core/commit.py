"""Which version of the source code is running."""

import subprocess
from functools import cache
from pathlib import Path

__all__ = ["source_commit"]


@cache
def source_commit() -> str:
    """The commit of the source code, with "+" if files have changed since; "" if it is not in a Git repository.

    Returns
    -------
    str
        The first 12 digits of the commit.
    """
    source = Path(__file__).resolve().parents[1]
    if not (source.parents[1] / ".git").exists():  # installed, perhaps inside somebody else's repository
        return ""
    try:
        commit = _git(source, "rev-parse", "HEAD")[:12]
        return commit + ("+" if commit and _git(source, "status", "-s", ".") else "")
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _git(directory: Path, *arguments: str) -> str:
    """What a Git command prints; nothing if it fails."""
    done = subprocess.run(["git", "-C", directory, *arguments], capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
