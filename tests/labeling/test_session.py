"""A session and the journal always agree, whatever was done, and however often the server was started."""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_folders import class_folders, picture
from labeling_server import colored_pictures

from rankingmatch.core.errors import DataError
from rankingmatch.data.label_journal import LabelEvent, parse_events, replay
from rankingmatch.labeling.folder import given_labels, journal_path, open_session
from rankingmatch.labeling.journal import Journal
from rankingmatch.labeling.session import RequestError, Session

FILES = [f"{number}.png" for number in range(6)]
numbers = st.integers(0, len(FILES) - 1)
class_ids = st.integers(0, 4)
actions = st.one_of(
    st.tuples(st.just("label"), numbers, st.one_of(class_ids, st.none(), st.just("none"))),
    st.tuples(st.just("accept"), class_ids, st.lists(numbers, max_size=4)),
    st.tuples(st.just("add"), st.sampled_from(["cat", "dog", "bird", "fish"]), st.none()),
    st.tuples(st.just("rename"), class_ids, st.sampled_from(["cat", "dog", "bird", "fish"])),
    st.tuples(st.just("merge"), class_ids, class_ids),
    st.tuples(st.just("undo"), st.none(), st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
)


def session_in(folder: str) -> Session:
    given = [LabelEvent("", "cat", "class:"), LabelEvent("", "dog", "class:"), LabelEvent("0.png", "cat", "train")]
    return Session(Path(folder), FILES, Journal(Path(folder) / "labels.csv"), given)


def act(session: Session, name: str, first: object, second: object) -> None:
    methods: dict[str, Callable[[], object]] = {
        "label": lambda: session.label(first, second),  # type: ignore[arg-type]
        "accept": lambda: session.accept(first, second),  # type: ignore[arg-type]
        "add": lambda: session.add_class(first),  # type: ignore[arg-type]
        "rename": lambda: session.rename_class(first, second),  # type: ignore[arg-type]
        "merge": lambda: session.merge_classes(first, second),  # type: ignore[arg-type]
        "undo": lambda: session.undo("me"),
    }
    with contextlib.suppress(RequestError):  # some requests cannot be carried out
        methods[name]()


def content(session: Session) -> tuple[object, ...]:
    """Everything that must survive a restart."""
    labels = session.labels
    marks = [(file, mark.class_id, mark.part) for file, mark in labels.marks.items()]
    return dict(labels.classes), marks, list(labels.undo)


def unordered(session: Session) -> tuple[object, object]:
    """What must be the same after an undo: the order in which files were labeled need not."""
    labels = session.labels
    return dict(labels.classes), {file: (mark.class_id, mark.part) for file, mark in labels.marks.items()}


@settings(max_examples=150, deadline=None)
@given(st.lists(actions, max_size=25))
def test_after_any_actions_a_restart_changes_nothing_and_the_training_sees_the_same_labels(
    steps: list[tuple[str, object, object]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = session_in(folder)
        for name, first, second in steps:
            if name == "restart":
                before = content(session)
                session.journal.close()
                session = session_in(folder)
                assert content(session) == before
            else:
                act(session, name, first, second)
        if session.journal.path.exists():
            read = replay(parse_events(session.journal.path.read_bytes(), session.journal.path)[0])
            expected = {
                file: ("" if mark.class_id is None else session.labels.classes[mark.class_id], mark.part)
                for file, mark in session.labels.marks.items()
            }
            assert {file: label for file, label in read.items() if label[0] or label[1] == "none"} == {
                file: label for file, label in expected.items() if label[0] or label[1] == "none"
            }
        session.journal.close()


# Of a picture that was skipped, labeled and undone, nobody knows that it was skipped: it is shown again.
reversible = actions.filter(lambda step: step[0] not in ("undo", "restart") and step[::2] != ("label", None))


@settings(max_examples=100, deadline=None)
@given(st.lists(reversible, max_size=12))
def test_undoing_leads_back_step_by_step(steps: list[tuple[str, object, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = session_in(folder)
        states = [unordered(session)]
        for name, first, second in steps:
            act(session, name, first, second)
            if len(session.labels.undo) == len(states):
                states.append(unordered(session))
        for expected in states[-2::-1]:
            session.undo("me")
            assert unordered(session) == expected
        assert session.labels.undo == []
        session.journal.close()


def test_folders_that_may_be_albums_give_no_labels(tmp_path: Path) -> None:
    files = ["2019/a.png", "2020/b.png"]
    assert given_labels(tmp_path, files) == []
    assert given_labels(tmp_path, [*files, "c.png"]) != []  # beside loose images they are classes
    named = given_labels(tmp_path, files, ("2019",))
    assert [(event.file, event.label) for event in named] == [("", "2019"), ("2019/a.png", "2019")]


def test_class_folders_in_labeled_are_labels_and_everything_else_is_not(tmp_path: Path) -> None:
    class_folders(tmp_path / "labeled", each=1)
    picture(tmp_path / "other" / "x.png")
    picture(tmp_path / "test" / "red" / "y.png")
    session = open_session(tmp_path)
    assert len(session.files) == 4  # test/ is for testing
    assert session.state()["labeled"] == 3
    session.journal.close()


def test_a_plain_table_of_labels_is_left_alone_and_its_labels_count(tmp_path: Path) -> None:
    colored_pictures(tmp_path, 3)
    (tmp_path / "labels.csv").write_text("file,label\n000.png,red\n001.png,green\n")
    session = open_session(tmp_path)
    assert session.journal.path.name == "labels-journal.csv"
    assert session.state()["labeled"] == 2
    session.label(2, 0)
    session.journal.close()
    assert (tmp_path / "labels.csv").read_text() == "file,label\n000.png,red\n001.png,green\n"
    assert journal_path(tmp_path / "labels.csv").name == "labels-journal.csv"
    again = open_session(tmp_path)
    assert again.state()["labeled"] == 3
    again.journal.close()


def test_a_file_that_returns_has_its_label_again(tmp_path: Path) -> None:
    colored_pictures(tmp_path, 4)
    session = open_session(tmp_path, classes=("red",))
    session.label(1, 0)
    session.journal.close()
    moved = (tmp_path / "001.png").rename(tmp_path.parent / "001.png")
    session = open_session(tmp_path)
    assert session.state()["labeled"] == 0
    session.journal.close()
    moved.rename(tmp_path / "001.png")
    session = open_session(tmp_path)
    assert session.state()["labeled"] == 1
    session.journal.close()


def test_a_class_that_was_renamed_is_not_added_again_by_the_same_command(tmp_path: Path) -> None:
    colored_pictures(tmp_path, 3)
    session = open_session(tmp_path, classes=("red", "green"))
    session.rename_class(0, "crimson")
    session.journal.close()
    session = open_session(tmp_path, classes=("red", "green"))
    assert [one["name"] for one in session.state()["classes"]] == ["crimson", "green"]
    session.journal.close()


def test_a_folder_without_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no images"):
        open_session(tmp_path)
