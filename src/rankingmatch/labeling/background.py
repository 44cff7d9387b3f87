"""What a session computes in the background: features, predictions of a trained run, and the model."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from rankingmatch.core.errors import RunError, first_line
from rankingmatch.core.names import first_few, printable
from rankingmatch.core.options import flag
from rankingmatch.heads import HEAD_METHOD
from rankingmatch.heads.smoothing import smooth_features
from rankingmatch.labeling.features import Features
from rankingmatch.labeling.model import Lesson, guesses_of
from rankingmatch.labeling.processes import Child
from rankingmatch.labeling.selection import UNSURE
from rankingmatch.labeling.session import Session

log = logging.getLogger(__name__)

MOST = 20_000  # images with features; of a larger folder, a random part and the labeled ones
FEWEST = 256  # features with which the first model is trained
GROWTH = 1.5  # times as many features as before are worth another preparation
SECONDS_BETWEEN_FITS = 1.0
SECONDS_TO_STOP = 60  # at most; a model takes one or two
WAITING = "two labels of each of two classes are needed"


def pool_of(session: Session, most: int = MOST) -> list[int]:
    """The images that the model knows: labeled ones first, then the others in the order in which they are shown."""
    labeled = [session.number_of[file] for file in session.labels.marks if file in session.number_of]
    if len(session.files) > most:
        labeled = labeled[-(most // 2) :]
    return list(dict.fromkeys([*labeled, *session.queue.preview()]))[:most]


class Background:
    """Threads that compute features and models, and tell the session; whatever fails, the page shows it.

    Predictions of the session's run are used until there is a model of its labels, which `method` trains.
    """

    def __init__(self, session: Session, method: str = HEAD_METHOD) -> None:
        self._session, self._method = session, method
        pool = pool_of(session)
        self._numbers = np.array(pool, np.int64)
        self._row_of = {number: row for row, number in enumerate(pool)}
        self._features = Features(session.root, [session.files[number] for number in pool])
        self._smoothed = np.zeros((len(pool), 0), np.float32)
        self._smoothed_rows = np.zeros(len(pool), bool)
        self._of_run: dict[str, np.ndarray] = {}  # probabilities (m,) by the name of the class
        self._curve: list[dict[str, float]] | None = None
        self._learned: tuple[object, ...] = ()  # what the last model was trained on
        self._child: Child | None = None
        self._failures: dict[str, str] = {}
        self._stopping = threading.Event()
        self._preparing = threading.Thread(target=self._prepare, daemon=True)
        self._learning = threading.Thread(target=self._learn, daemon=True)

    def start(self) -> None:
        """Start the threads."""
        self._preparing.start()
        self._learning.start()

    def stop(self) -> None:
        """Stop the threads, and wait for them: Python must not end while one of them computes."""
        self._stopping.set()
        if self._child is not None:
            self._child.stop()
        for thread in (self._preparing, self._learning):
            thread.join(SECONDS_TO_STOP)

    def _attempt(self, task: str, work: Callable[[], None]) -> bool:
        """Do some work, and say whether it succeeded; a failure is shown until the same work succeeds."""
        failure = ""
        try:
            work()
        except Exception as error:  # a thread must not end silently: the other work goes on
            log.debug("%s failed", task, exc_info=True)
            failure = "" if self._stopping.is_set() else f"{task} failed: {first_line(error)}"
        with self._session.lock:
            self._failures[task] = failure
            self._session.show(failure="; ".join(filter(None, self._failures.values())) or None)
        return not failure

    def _answers(self, *arguments: str, request: bytes) -> Iterator[dict[str, Any]]:
        """What a process answers, which ends with the threads."""
        self._child = Child(*arguments, request=request)
        if self._stopping.is_set():
            self._child.stop()
        yield from self._child.answers()

    # --- features, and predictions of the run --------------------------------------------------------------------

    def _prepare(self) -> None:
        waiting = {"state": "waiting", "labels": 0, "why": "the features of the images are being computed"}
        self._session.show(model=waiting)
        if self._session.run is not None:
            self._attempt(f"predicting with {printable(str(self._session.run))}", self._predict)
        if not self._attempt("computing features of the images", self._compute) and not self._of_run:
            self._session.show(model={**waiting, "why": "the images have no features"})

    def _compute(self) -> None:
        unreadable = 0

        def show() -> None:
            done = int(self._features.known.sum()) + unreadable
            self._session.show(features={"done": done, "total": len(self._numbers)})

        missing = self._features.read_cache()
        show()
        for answer in self._answers("rankingmatch.labeling.features", request=missing) if missing else ():
            for row in self._features.add(answer):
                self._session.mark_unreadable(int(self._numbers[row]))
                unreadable += 1
            show()

    def _predict(self) -> None:
        """Predictions of a trained run for all images, its least confident ones first in the order."""
        run = str(self._session.run)
        row_of = {self._session.path(int(number)): row for row, number in enumerate(self._numbers)}
        command = ["predict", run, "-", *map(flag, ("null", "json", "probabilities", "quiet"))]
        found: dict[str, np.ndarray] = {}
        for answer in self._answers("rankingmatch", *command, request=b"\0".join(map(os.fsencode, row_of))):
            for name, value in answer["probabilities"].items():
                found.setdefault(name, np.zeros(len(row_of), np.float32))[row_of[answer["file"]]] = value
        if self._stopping.is_set() or not found:
            return
        self._of_run = found
        probabilities, ids = self._mixed(np.zeros((len(row_of), 0), np.float32), np.empty(0, np.int64))
        if not len(ids):
            self._of_run = {}
            raise RunError(f"none of its classes is a class here: {first_few(list(found))}")
        predicted = np.sum([*found.values()], axis=0) > 0
        unsure = [row for row in np.argsort(probabilities.max(1), kind="stable").tolist() if predicted[row]]
        ranking = [(int(self._numbers[row]), UNSURE) for row in unsure]
        self._session.use_model(guesses_of(self._numbers, predicted, probabilities, ids), ranking, {})
        self._session.show(model={"state": "ready", "labels": 0, "why": f"the model of {printable(run)}"})

    # --- the model -----------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Train whenever labels or features have changed, in one thread: on a busy machine, several would wait."""
        with threadpool_limits(1):
            while not self._stopping.wait(SECONDS_BETWEEN_FITS):
                self._attempt("learning", self._learn_what_is_new)

    def _learn_what_is_new(self) -> None:
        # Prepare the features for the model: when all are known, and before that when there are many more.
        known = self._features.known.copy()
        count, before = int(known.sum()), int(self._smoothed_rows.sum())
        enough = min(FEWEST, len(known)) if before == 0 else GROWTH * before
        if count >= enough or (not self._preparing.is_alive() and count > before):
            self._smoothed = smooth_features(np.where(known[:, None], self._features.values, 0), self._session.seed)
            self._smoothed_rows, before = known, count
        with self._session.lock:
            lesson = self._lesson()
        new = (before, lesson.labels.tobytes(), lesson.checks.tobytes())
        if not before or new == self._learned:
            return
        self._learned, started = new, time.monotonic()
        self._attempt("training the model behind this page", lambda: self._update(lesson))
        # Half of one core at most, and a fifth while features are computed.
        self._stopping.wait((4 if self._preparing.is_alive() else 1) * (time.monotonic() - started))

    def _lesson(self) -> Lesson:
        """The labels of all images of the pool; of those whose features are not known, none can be used."""
        known = self._smoothed_rows
        labels, checks = np.where(known, -1, -2), np.full(len(known), -1)
        labels[[self._row_of[number] for number in self._session.checks if number in self._row_of]] = -2
        order = []
        for file, mark in self._session.labels.marks.items():
            row = self._row_of.get(self._session.number_of.get(file, -1))
            if row is None or not known[row]:
                continue
            labels[row] = -2 if mark.class_id is None or mark.part != "train" else mark.class_id
            checks[row] = mark.class_id if mark.class_id is not None and mark.part == "test" else -1
            order += [row] if labels[row] >= 0 else []
        return Lesson(self._numbers, self._smoothed, labels, checks, np.array(order, np.int64), known)

    def _update(self, lesson: Lesson) -> None:
        """A new model, or an order that covers the folder as long as there is none; that of a run is better."""
        session, seed, labels = self._session, self._session.seed, len(lesson.order)
        if not lesson.is_enough:
            if not self._of_run:
                session.use_model({}, lesson.ranking(seed), {})
                session.show(model={"state": "waiting", "labels": 0, "why": WAITING})
            return
        if not session.guesses:
            session.show(model={"state": "training", "labels": labels, "why": ""})
        probabilities, ids = lesson.learn(seed, self._method)
        if self._curve is None and not self._stopping.is_set():
            self._curve = lesson.curve(seed, self._method)
        mixed, mixed_ids = self._mixed(probabilities, ids)
        quality = lesson.quality(mixed, mixed_ids, self._curve or [])
        self._curve = quality["curve"] if quality else self._curve
        guesses = guesses_of(lesson.numbers, lesson.known, mixed, mixed_ids)
        ranking = lesson.ranking(seed, mixed, mixed_ids)
        session.use_model(guesses, ranking, session.doubts)
        session.show(model={"state": "ready", "labels": labels, "why": ""}, quality=quality)
        if not self._stopping.is_set():
            session.use_model(guesses, ranking, lesson.doubts(seed))

    def _mixed(self, probabilities: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean of these probabilities and those of the run, over the classes of both."""
        if not self._of_run:
            return probabilities, ids
        with self._session.lock:
            state = self._session.labels
            named = [(state.class_id(state.current_name(name)), values) for name, values in self._of_run.items()]
        every = np.array(sorted({*ids.tolist(), *(one for one, _ in named if one is not None)}), np.int64)
        mixed = np.zeros((len(probabilities), len(every)), np.float32)
        mixed[:, np.searchsorted(every, ids)] += probabilities
        for class_id, values in named:
            if class_id is not None:
                mixed[:, np.searchsorted(every, class_id)] += values[: len(probabilities)]
        return mixed / np.maximum(mixed.sum(1, keepdims=True), 1e-6), every
