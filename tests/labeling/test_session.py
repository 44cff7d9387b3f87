"""A session and the journal always agree, whatever was done, and however often the server was started."""

import contextlib
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_folders import class_folders, picture
from labeling_server import colored_images

from rankingmatch.core.errors import DataError
from rankingmatch.data.label_journal import LabelEvent, parse_events, replay
from rankingmatch.labeling.folder import given_labels, open_session
from rankingmatch.labeling.journal import Journal
from rankingmatch.labeling.session import RequestError, Session

OpenSession = Callable[..., Session]
FILES = [f"{number}.png" for number in range(6)]
numbers = st.integers(0, len(FILES) - 1)
class_ids = st.integers(0, 4)
names = st.sampled_from(["cat", "dog", "bird", "fish"])
actions = st.one_of(
    st.tuples(st.just("label"), numbers, st.one_of(class_ids, st.none(), st.just("none"))),
    st.tuples(st.just("accept"), class_ids, st.lists(numbers, max_size=4)),
    st.tuples(st.just("add_class"), names),
    st.tuples(st.just("rename_class"), class_ids, names),
    st.tuples(st.just("merge_classes"), class_ids, class_ids),
)
undo, restart = st.just(("undo", "me")), st.just(("restart",))


def session_in(folder: str) -> Session:
    given = [LabelEvent("", "cat", "class:"), LabelEvent("", "dog", "class:"), LabelEvent("0.png", "cat", "train")]
    return Session(Path(folder), FILES, Journal(Path(folder) / "labels.csv"), given)


def act(session: Session, name: str, *arguments: Any) -> None:
    with contextlib.suppress(RequestError):  # some requests cannot be carried out
        getattr(session, name)(*arguments)


def labels_of(session: Session) -> dict[str, tuple[str, str]]:
    """The class and the part of each file that was not skipped."""
    labels = session.labels
    return {file: (labels.name_of(mark), mark.part) for file, mark in labels.marks.items() if not mark.skipped}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(actions, undo, restart), max_size=25))
def test_after_any_actions_a_restart_changes_nothing_and_the_training_sees_the_same_labels(
    steps: list[tuple[Any, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = session_in(folder)
        for step in [*steps, ("restart",)]:
            if step != ("restart",):
                act(session, *step)
                continue
            before = session.labels
            session.journal.close()
            session = session_in(folder)
            marks = [[(file, mark[:2]) for file, mark in one.marks.items()] for one in (before, session.labels)]
            assert marks[0] == marks[1]
            assert (before.classes, before.undo) == (session.labels.classes, session.labels.undo)
        if (path := session.journal.path).exists():
            read = replay(parse_events(path.read_bytes(), path)[0])
            assert {file: (label, part) for file, (label, part) in read.items() if label or part} == labels_of(session)
        session.journal.close()


# Of a picture that was skipped, labeled and undone, nobody knows that it was skipped: it is shown again.
@settings(max_examples=100, deadline=None)
@given(st.lists(actions.filter(lambda step: step[2:] != (None,)), max_size=12))
def test_undoing_leads_back_step_by_step(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = session_in(folder)
        states = [(dict(session.labels.classes), labels_of(session))]
        for step in steps:
            act(session, *step)
            if len(session.labels.undo) == len(states):
                states.append((dict(session.labels.classes), labels_of(session)))
        for expected in states[-2::-1]:
            session.undo("me")
            assert (session.labels.classes, labels_of(session)) == expected
        assert session.labels.undo == []
        session.journal.close()


def test_folders_that_may_be_albums_give_no_labels(tmp_path: Path, open_one: OpenSession) -> None:
    files = ["2019/a.png", "2020/b.png"]
    assert given_labels(tmp_path, files) == []
    assert given_labels(tmp_path, [*files, "c.png"]) != []  # beside loose images they are classes
    named = given_labels(tmp_path, files, ("2019",))
    assert [(event.file, event.label) for event in named] == [("", "2019"), ("2019/a.png", "2019")]
    class_folders(tmp_path / "labeled", each=1)
    picture(tmp_path / "other" / "x.png")
    picture(tmp_path / "test" / "red" / "y.png")
    session = open_one(tmp_path)
    assert len(session.files) == 4  # test/ is for testing
    assert session.state()["labeled"] == 3


def test_a_plain_table_of_labels_is_left_alone_and_its_labels_count(tmp_path: Path, open_one: OpenSession) -> None:
    colored_images(tmp_path, 3)
    (tmp_path / "labels.csv").write_text("file,label\n000.png,red\n001.png,green\n")
    session = open_one(tmp_path)
    assert session.journal.path.name == "labels-journal.csv"
    assert session.state()["labeled"] == 2
    session.label(2, 0)
    assert (tmp_path / "labels.csv").read_text() == "file,label\n000.png,red\n001.png,green\n"
    assert open_one(tmp_path).state()["labeled"] == 3


@pytest.mark.parametrize("kind", ["fifo", "device", "link to a device", "huge", "folder"])
def test_a_file_of_labels_that_cannot_be_one_is_refused_without_reading_it(
    tmp_path: Path, open_one: OpenSession, kind: str
) -> None:
    colored_images(tmp_path, 3)
    path = Path("/dev/zero") if kind == "device" else tmp_path / "labels.csv"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    elif kind == "huge":
        path.touch()
        os.truncate(path, 20 * 2**30)
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(DataError, match="more than" if kind == "huge" else "not a regular file"):
        open_one(tmp_path, path)


def test_a_file_that_returns_has_its_label_again_and_a_renamed_class_is_not_added_again(
    tmp_path: Path, open_one: OpenSession
) -> None:
    colored_images(tmp_path, 4)
    session = open_one(tmp_path, classes=("red", "green"))
    session.label(1, 0)
    session.rename_class(0, "crimson")
    moved = (tmp_path / "001.png").rename(tmp_path.parent / "001.png")
    assert open_one(tmp_path).state()["labeled"] == 0
    moved.rename(tmp_path / "001.png")
    state = open_one(tmp_path, classes=("red", "green")).state()
    assert state["labeled"] == 1
    assert [one["name"] for one in state["classes"]] == ["crimson", "green"]


def test_a_clock_that_goes_back_joins_no_two_steps(
    tmp_path: Path, open_one: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 2, 1))
    monkeypatch.setattr("rankingmatch.labeling.session.datetime", SimpleNamespace(now=lambda zone: next(clock)))
    for number in range(2):
        open_one(colored_images(tmp_path, 3), classes=("red",)).label(number, 0)
    assert len(open_one(tmp_path).labels.undo) == 2


def test_a_folder_without_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no images"):
        open_session(tmp_path)
