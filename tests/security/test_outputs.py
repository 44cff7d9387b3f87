"""Files that the user names as outputs: devices and pipes are written to, links are followed, nothing is replaced."""

import os
import threading
from pathlib import Path

import pytest

from rankingmatch.core.atomic import open_for_appending, opened_output, unused_path, write_atomically, write_output
from rankingmatch.core.errors import ConfigError
from rankingmatch.core.names import folder_names
from rankingmatch.runs.directory import OWN_FILES, Run


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_a_named_pipe_is_written_to_also_by_a_link(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_output(tmp_path / name, b"content")
    reader.join(10)
    assert read == [b"content"]
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()


def test_a_device_is_written_to_and_stays_and_a_full_one_is_an_error() -> None:
    before = Path("/dev/null").lstat()
    write_output(Path("/dev/null"), b"content")
    assert Path("/dev/null").lstat().st_ino == before.st_ino
    with pytest.raises(OSError, match="No space"):
        write_output(Path("/dev/full"), b"content")


@pytest.mark.parametrize("existing", [True, False])
def test_a_link_is_followed_and_stays(existing: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    if existing:
        (tmp_path / "folder/file").write_text("old")
    (tmp_path / "link").symlink_to("folder/file")
    write_output(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder/file").read_text() == "new"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["file"]


def test_a_file_that_is_not_completed_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(ValueError, match="stop"), opened_output(tmp_path / "file") as file:  # noqa: PT012
        file.write(b"new")
        raise ValueError("stop")
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_of_a_run_replaces_a_link_instead_of_following_it(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine")
    (tmp_path / "link").symlink_to("outside")
    write_atomically(tmp_path / "link", b"new")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "outside").read_text() == "mine"
    (tmp_path / "table").symlink_to("outside")
    with pytest.raises(OSError, match="symbolic links"):
        open_for_appending(tmp_path / "table")


def test_temporary_files_have_new_names_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    original = os.open

    def recorded(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            names.append(str(path))
            assert flags & os.O_EXCL
            assert flags & os.O_NOFOLLOW
        return original(path, flags, mode)

    monkeypatch.setattr(os, "open", recorded)
    for _ in range(20):
        write_atomically(tmp_path / "file", b"content")
    assert len(set(names)) == 20


@pytest.mark.parametrize(
    "classes",
    [("a/b", "a_b"), ("a_b", "a/b"), ("Cat", "cat"), ("..", "_.."), ("", "_"), ("a/b", "a_b", "a_b-2"), (".x", "_.x")],
)
def test_no_two_classes_share_a_folder(classes: tuple[str, ...], tmp_path: Path) -> None:
    names = folder_names(classes)
    assert len({name.casefold() for name in names}) == len(classes)
    for name in names:
        (tmp_path / name).mkdir()
        assert (tmp_path / name).parent == tmp_path
        assert not name.startswith(".")


@pytest.mark.parametrize("name", ["n" * 250 + ".png", "é" * 120 + ".png", "short.png"])
def test_a_second_file_of_a_long_name_has_a_name_that_fits(name: str, tmp_path: Path) -> None:
    for _ in range(3):
        unused_path(tmp_path / name).write_text("x")
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("name", OWN_FILES)
def test_an_output_never_replaces_a_file_of_the_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path / name, tmp_path / "link" / name):
        Run(tmp_path).require_output(path)  # there is none yet
    (tmp_path / name).write_text("x")
    for path in (tmp_path / name, tmp_path / "link" / name):
        with pytest.raises(ConfigError, match="is a file of the run"):
            Run(tmp_path).require_output(path)
    Run(tmp_path / "other").require_output(tmp_path / name)
