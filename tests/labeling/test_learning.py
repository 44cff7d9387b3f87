"""Features, and the model that learns from them in the background."""

import json
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from labeling_server import Page, colored_pictures, open_page

from rankingmatch.labeling import background as background_module
from rankingmatch.labeling import features as features_module
from rankingmatch.labeling import model
from rankingmatch.labeling.background import Background, pool_of
from rankingmatch.labeling.features import DIMENSION, Features, compute_blocks
from rankingmatch.labeling.model import Lesson
from rankingmatch.runs import photographs


def mean_colors(images: np.ndarray) -> np.ndarray:
    """A network for tests: the mean color, and zeros."""
    features = np.zeros((len(images), DIMENSION), np.float32)
    features[:, :3] = images.mean((1, 2)) / 255
    return features


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Features without a network and in this process; the result has the number of files of each computation."""
    computed: list[int] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(features_module, "feature_function", lambda: mean_colors)

    def in_this_process(self: Features, missing: list[tuple[str, bytes]]) -> Iterator[tuple[Path, list[list[str]]]]:
        computed.append(len(missing))
        answers = StringIO()
        files = [(str(self._root / file), stamp.decode()) for file, stamp in missing]
        compute_blocks(self.directory, files, answers)
        for line in answers.getvalue().splitlines():
            yield self.directory / json.loads(line)["block"], json.loads(line)["bad"]

    monkeypatch.setattr(Features, "_computed", in_this_process)
    return computed


def compute(root: Path, names: list[str]) -> tuple[Features, list[int], list[tuple[int, str]]]:
    features, done, bad = Features(root, names), list[int](), list[tuple[int, str]]()
    features.compute(done.append, lambda row, reason: bad.append((row, reason)))
    return features, done, bad


def test_features_are_computed_once_and_only_for_what_is_new(tmp_path: Path, cache: list[int]) -> None:
    root = colored_pictures(tmp_path / "photos", 150)
    names = sorted(path.name for path in root.iterdir())
    features, done, bad = compute(root, names)
    assert (done[0], done[-1], bad, cache) == (0, 150, [], [150])
    assert features.known.all()
    assert features.values[0, :3].astype(float) == pytest.approx([200 / 255, 40 / 255, 40 / 255], abs=0.1)
    colored_pictures(tmp_path / "new", 1).joinpath("000.png").rename(root / "0000-first.png")
    again, _, _ = compute(root, sorted([*names, "0000-first.png"]))
    assert cache == [150, 1]
    assert np.array_equal(again.values[-1], features.values[-1])


def test_a_file_that_cannot_be_decoded_is_reported_and_has_no_features(tmp_path: Path, cache: list[int]) -> None:
    root = colored_pictures(tmp_path / "photos", 3)
    (root / "001.png").write_bytes(b"nothing")
    features, done, bad = compute(root, ["000.png", "001.png", "002.png"])
    assert features.known.tolist() == [True, False, True]
    assert bad == [(1, "is not an image")]
    assert done[-1] == 3


def test_a_damaged_block_is_computed_again(tmp_path: Path, cache: list[int]) -> None:
    root = colored_pictures(tmp_path / "photos", 3)
    features, _, _ = compute(root, ["000.png", "001.png", "002.png"])
    (block,) = features.directory.glob("*.npy")
    block.write_bytes(block.read_bytes()[:200])
    again, _, _ = compute(root, ["000.png", "001.png", "002.png"])
    assert again.known.all()
    assert cache == [3, 3]


def lesson_of(labels: list[int], audited: list[int]) -> Lesson:
    """Pictures of three clusters, in order of their classes 4, 7 and 9."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], len(labels) // 3)
    features = np.eye(8, dtype=np.float32)[truth] + 0.1 * rng.normal(size=(len(labels), 8)).astype(np.float32)
    rows = np.flatnonzero(np.array(labels) >= 0)
    known = np.ones(len(labels), bool)
    return Lesson(np.arange(100, 100 + len(labels)), features, np.array(labels), np.array(audited), rows, known)


def test_a_model_predicts_class_ids_and_doubts_a_wrong_label() -> None:
    labels = [4, 4, 4, 9, -1, -1, 7, 7, 7, 7, -1, -1, 9, 9, 9, 9, -1, -1]  # row 3 is wrong
    audited = [-1] * 5 + [4] + [-1] * 5 + [7] + [-1] * 5 + [4]  # the last one is wrong
    lesson = lesson_of(labels, audited)
    assert lesson.is_enough
    probabilities, ids = model.learn(lesson, seed=0, method="logistic-regression")
    assert ids.tolist() == [4, 7, 9]
    guesses = model.guesses_of(lesson.numbers, lesson.known, probabilities, ids)
    assert guesses.of(110) == (7, float(probabilities[10, 1]))
    assert guesses.of(99) is None
    # The wrong label of an audit picture is not shown: correcting it would make the model look better than it is.
    assert {number for number, _, _ in model.doubts_of(lesson, ids, 0)} == {103}
    quality = model.quality_of(lesson, probabilities, ids, [])
    assert quality is not None
    assert (quality["error"], quality["checks"], quality["curve"][0]["labels"]) == (33.33, 3, 12)
    numbers = {number for number, _ in model.ranking_of(lesson, probabilities, 0)}
    assert numbers <= {104, 105, 110, 111, 116, 117}


@pytest.mark.parametrize("labels", [[-1] * 6, [0, 0, -1, -1, -1, -1], [0, 0, 1, -1, -1, -1]])
def test_two_labels_of_each_of_two_classes_are_needed(labels: list[int]) -> None:
    assert not lesson_of(labels, [-1] * 6).is_enough


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


@pytest.fixture
def page(tmp_path: Path, cache: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setattr(background_module, "SECONDS_BETWEEN_FITS", 0.05)
    page = open_page(colored_pictures(tmp_path / "photos", 60), classes=("red", "green", "blue"))
    yield page
    page.session.journal.close()


def test_the_model_learns_while_pictures_are_labeled(page: Page) -> None:
    background = Background(page.session)
    background.start()
    wait_until(lambda: page.state["features"] == {"done": 60, "total": 60})
    wait_until(lambda: page.state["model"]["why"] == background_module.WAITING)
    assert page.get("/next", client="me", count=1)["images"][0]["why"] == "typical of the folder"
    for _ in range(15):
        (one,) = page.get("/next", client="me", count=1)["images"]
        page.label(one["number"], one["number"] % 3)
    wait_until(lambda: page.state["model"]["state"] == "ready" and page.state["model"]["labels"] == 12)
    pictures = page.get("/grid", **{"class": 1}, order="sure", page=0)["images"]
    assert pictures
    assert all(one["number"] % 3 == 1 for one in pictures)
    wait_until(lambda: page.state["quality"]["checks"] == 3)
    background.stop()
    assert not any(thread.is_alive() for thread in background._threads)


def test_the_pool_of_a_large_folder_has_labeled_and_audit_pictures(page: Page) -> None:
    number = next(n for n in page.session.order.tolist()[::-1] if n not in page.session.checks)
    page.label(number, 1)
    assert pool_of(page.session)[0] == number
    assert sorted(pool_of(page.session)) == list(range(60))
    small = pool_of(page.session, most=20)
    assert (small[0], len(small), len(set(small))) == (number, 20, 20)
    assert len(set(small) & set(page.session.checks)) == 3  # every fifth


@pytest.mark.slow
def test_the_real_network_tells_colors_apart(tmp_path: Path) -> None:
    root = colored_pictures(tmp_path / "photos", 6, size=(128, 128))
    features, done, bad = compute(root, [f"{number:03d}.png" for number in range(6)])
    assert (done[-1], bad) == (6, [])
    values = features.values.astype(np.float32)
    distance = np.linalg.norm(values[:, None] - values[None], axis=2) + 1e9 * np.eye(6)
    assert (distance.argmin(1) % 3).tolist() == [0, 1, 2, 0, 1, 2]


def test_features_are_those_that_training_starts_from() -> None:
    assert (features_module.NETWORK, features_module.SIDE) == (photographs.NETWORK, photographs.SIDE)
