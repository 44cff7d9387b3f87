"""The commit that a run records."""

import subprocess
from pathlib import Path

import pytest

from rankingmatch.core import versions
from rankingmatch.core.versions import source_commit


def git(directory: Path, *arguments: str) -> str:
    person = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", "-C", directory, *person, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_and_whether_files_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "src/package/core/versions.py"
    module.parent.mkdir(parents=True)
    module.touch()
    monkeypatch.setattr(versions, "__file__", str(module))
    assert source_commit.__wrapped__() == ""  # no repository
    git(tmp_path, "init", "-q")
    assert source_commit.__wrapped__() == ""  # no commit
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    assert source_commit.__wrapped__() == git(tmp_path, "rev-parse", "HEAD")[:12]
    module.write_text("changed")
    assert source_commit.__wrapped__() == git(tmp_path, "rev-parse", "HEAD")[:12] + "+"
