"""Features, and the model that learns from them in the background."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeling_server import Page, colored_images
from tiny import clusters

from rankingmatch.core.errors import DataError
from rankingmatch.labeling import background as background_module
from rankingmatch.labeling import features as features_module
from rankingmatch.labeling.background import Background, pool_of
from rankingmatch.labeling.features import DIMENSION, Features, compute_blocks
from rankingmatch.labeling.model import Lesson, guesses_of, out_of_fold
from rankingmatch.labeling.processes import Child


def mean_colors(images: np.ndarray) -> np.ndarray:
    """A network for tests: the mean color, and zeros."""
    features = np.zeros((len(images), DIMENSION), np.float32)
    features[:, :3] = images.mean((1, 2)) / 255
    return features


class FakeChild:
    """A process, in this one: that computes features, or predicts, the more confident the larger the image's number."""

    names: tuple[str, ...] = ("red", "green")  # of classes that it predicts; without any, it fails

    def __init__(self, module: str, *arguments: str, request: bytes) -> None:
        self.predicts, self.request = module == "rankingmatch", request

    def answers(self) -> Iterator[dict[str, Any]]:
        if not self.predicts:
            request = json.loads(self.request)
            yield from compute_blocks(Path(request["directory"]), request["files"])
            return
        if not self.names:
            raise DataError("the model is\ndamaged")
        for file in self.request.decode().split("\0"):
            confidence = 0.5 + int(Path(file).stem) / 100
            yield {"file": file, "probabilities": dict(zip(self.names, (confidence, 1 - confidence), strict=True))}

    def stop(self) -> None:
        """Nothing runs."""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features without a network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(features_module, "feature_function", lambda count: mean_colors)


def compute(root: Path, names: list[str], child: Callable[..., Any] = FakeChild) -> tuple[Features, list[int], int]:
    """Features, the rows of files that cannot be decoded, and how many files were not cached."""
    features = Features(root, names)
    request = features.read_cache()
    answers = child("rankingmatch.labeling.features", request=request).answers() if request else ()
    bad = [row for answer in answers for row in features.add(answer)]
    return features, bad, len(json.loads(request)["files"]) if request else 0


@pytest.mark.usefixtures("fake")
def test_features_are_computed_once_unless_a_file_is_new_or_their_block_is_damaged(tmp_path: Path) -> None:
    root = colored_images(tmp_path / "photos", 150)
    (root / "001.png").write_bytes(b"nothing")
    names = sorted(path.name for path in root.iterdir())
    features, bad, computed = compute(root, names)
    assert (bad, computed, features.known.sum()) == ([1], 150, 149)
    assert features.values[0, :3].astype(float) == pytest.approx([200 / 255, 40 / 255, 40 / 255], abs=0.1)
    (root / "150.png").write_bytes((root / "149.png").read_bytes())
    again, _, computed = compute(root, [*names, "150.png"])
    assert computed == 1 + len(bad)
    assert np.array_equal(again.values[:-1], features.values)
    for block in features.directory.glob("*.npy"):
        block.write_bytes(block.read_bytes()[:200])
    assert compute(root, names)[1:] == ([1], 150)


def lesson_of(labels: list[int], checks: list[int]) -> Lesson:
    """Images of three clusters, in order of their classes 4, 7 and 9."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], len(labels) // 3)
    features = np.eye(8, dtype=np.float32)[truth] + 0.1 * rng.normal(size=(len(labels), 8)).astype(np.float32)
    rows = np.flatnonzero(np.array(labels) >= 0)
    known = np.ones(len(labels), bool)
    return Lesson(np.arange(100, 100 + len(labels)), features, np.array(labels), np.array(checks), rows, known)


def test_a_model_predicts_class_ids_and_doubts_a_wrong_label() -> None:
    labels = [4, 4, 4, 9, -1, -1, 7, 7, 7, 7, -1, -1, 9, 9, 9, 9, -1, -1]  # row 3 is wrong
    checks = [-1] * 5 + [4] + [-1] * 5 + [7] + [-1] * 5 + [4]  # the last one is wrong
    lesson = lesson_of(labels, checks)
    assert lesson.is_enough
    probabilities, ids = lesson.learn(seed=0, method="logistic-regression")
    assert ids.tolist() == [4, 7, 9]
    guesses = guesses_of(lesson.numbers, lesson.known, probabilities, ids)
    assert (guesses[110], len(guesses)) == ((7, float(probabilities[10, 1])), 18)
    # The wrong label of a random check is not shown: correcting it would make the model look better than it is.
    assert set(lesson.doubts(0)) == {103}
    quality = lesson.quality(probabilities, ids, [])
    assert quality is not None
    assert (quality["error"], quality["checks"], quality["curve"][0]["labels"]) == (33.33, 3, 12)
    ranking = lesson.ranking(0, probabilities, ids)
    assert {number for number, _ in ranking} <= {104, 105, 110, 111, 116, 117}
    # A trained run may know more classes; labels and probabilities are those of the same classes.
    more = np.insert(probabilities, 0, 0, axis=1)
    assert lesson.ranking(0, more, np.array([2, 4, 7, 9])) == ranking
    for too_few in ([-1] * 6, [0, 0, -1, -1, -1, -1], [0, 0, 1, -1, -1, -1]):
        assert not lesson_of(too_few, [-1] * 6).is_enough  # two labels of each of two classes are needed


def test_out_of_fold_predictions_do_not_see_the_label() -> None:
    features, truth = clusters()
    wrong = np.where(np.arange(len(truth)) < 60, truth, -1)
    wrong[7] = (truth[7] + 1) % 4
    held_out = out_of_fold(features, wrong, 4, seed=0)
    assert held_out.shape == (60, 4)
    assert held_out[7].argmax() == truth[7]
    assert (held_out.argmax(1) == truth[:60]).mean() > 0.9
    np.testing.assert_allclose(held_out.sum(1), 1, atol=1e-5)
    single = np.where(np.arange(len(truth)) == 3, 1, -1)
    assert out_of_fold(features, single, 2, seed=0).tolist() == [[0.5, 0.5]]


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


@pytest.fixture
def start(page: Page, fake: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Starts the background of the page, which does not wait between two models."""
    monkeypatch.setattr(background_module, "SECONDS_BETWEEN_FITS", 0.05)
    monkeypatch.setattr(background_module, "Child", FakeChild)
    started: list[Background] = []

    def start_one(run: Path | None = None) -> None:
        page.session.run = run
        started.append(Background(page.session, "logistic-regression"))
        started[-1].start()

    yield start_one
    for background in started:
        background.stop()
        assert not any(thread.is_alive() for thread in (background._preparing, background._learning))


def test_the_model_learns_while_images_are_labeled(page: Page, start: Callable[..., None]) -> None:
    start()
    wait_until(lambda: page.state["features"] == {"done": 30, "total": 30})
    wait_until(lambda: page.state["model"]["why"] == background_module.WAITING)
    assert page.next(1)[0]["why"] == "typical of the folder"
    for _ in range(15):
        (one,) = page.next(1)
        page.label(one["number"], one["number"] % 3)
    wait_until(lambda: page.state["model"]["state"] == "ready" and page.state["model"]["labels"] == 12)
    images = page.get("/grid", **{"class": 1})["images"]
    assert images
    assert all(one["number"] % 3 == 1 for one in images)
    wait_until(lambda: page.state["quality"]["checks"] == 3)
    assert page.state["failure"] is None


def test_a_trained_run_orders_the_images_until_there_are_labels(page: Page, start: Callable[..., None]) -> None:
    start(Path("runs/mine"))
    wait_until(lambda: page.state["model"]["state"] == "ready")
    numbers = [one["number"] for one in page.next(6) if not one["check"]]
    assert numbers == sorted(set(range(30)) - set(page.session.checks))[: len(numbers)]
    assert page.next(1)[0]["guess"]["class"] == 0


@pytest.mark.parametrize("names", [("teal", "gray"), ()])
def test_what_fails_in_the_background_is_shown_and_the_rest_goes_on(
    page: Page, start: Callable[..., None], monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(FakeChild, "names", names)
        patch.setattr(Lesson, "learn", lambda *_: 1 // 0)
        start(Path("runs/mine"))
        wait_until(lambda: page.state["model"]["why"] == background_module.WAITING)
        assert "predicting with runs/mine failed: " + ("none of" if names else "the model is") in page.state["failure"]
        for number in range(12):
            page.label(number, number % 3)
        wait_until(lambda: "the model behind this page failed: integer" in page.state["failure"])
        patch.setattr(Background, "_lesson", lambda *_: 1 // 0)
        wait_until(lambda: "learning failed: integer" in page.state["failure"])
    page.label(12, 0)
    wait_until(lambda: page.state["model"]["state"] == "ready")
    wait_until(lambda: "behind this page" not in page.state["failure"] and "learning" not in page.state["failure"])


def test_images_without_features_are_labeled_without_a_model(
    page: Page, start: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features_module, "feature_function", lambda count: 1 // 0)
    start()
    wait_until(lambda: page.state["model"]["why"] == "the images have no features")
    assert "computing features of the images failed" in page.state["failure"]
    assert page.label(0, 0)["state"]["labeled"] == 1


def test_the_pool_of_a_large_folder_has_labeled_images_and_random_checks(page: Page) -> None:
    number = next(n for n in list(page.session.queue.preview())[::-1] if n not in page.session.checks)
    page.label(number, 1)
    assert pool_of(page.session)[0] == number
    assert sorted(pool_of(page.session)) == list(range(30))
    small = pool_of(page.session, most=15)
    assert (small[0], len(small), len(set(small))) == (number, 15, 15)
    assert len(set(small) & set(page.session.checks)) == 2  # every fifth


@pytest.mark.slow
def test_the_real_network_tells_colors_apart(tmp_path: Path) -> None:
    root = colored_images(tmp_path / "photos", 6, size=(128, 128))
    features, bad, computed = compute(root, [f"{number:03d}.png" for number in range(6)], Child)
    assert (bad, computed) == ([], 6)
    values = features.values.astype(np.float32)
    distance = np.linalg.norm(values[:, None] - values[None], axis=2) + 1e9 * np.eye(6)
    assert (distance.argmin(1) % 3).tolist() == [0, 1, 2, 0, 1, 2]
