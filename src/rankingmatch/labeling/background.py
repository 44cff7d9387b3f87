"""What a session computes in the background: features, predictions of a trained run, and the model."""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from rankingmatch.core.errors import RunError, first_line
from rankingmatch.core.names import first_few, printable
from rankingmatch.core.options import flag
from rankingmatch.heads import HEAD_METHOD
from rankingmatch.heads.smoothing import smooth_features
from rankingmatch.labeling.features import Features
from rankingmatch.labeling.model import NO_GUESSES, Lesson, guesses_of
from rankingmatch.labeling.processes import Child
from rankingmatch.labeling.selection import Reason
from rankingmatch.labeling.session import Session

__all__ = ["Background", "pool_of"]

log = logging.getLogger(__name__)

MOST = 20_000  # images with features; of a larger folder, a random part and the labeled ones
FEWEST = 256  # features with which the first model is trained
GROWTH = 1.5  # times as many features as before are worth another preparation
SECONDS_BETWEEN_FITS = 1.0
SECONDS_TO_STOP = 60  # at most; a model takes one or two
WAITING = "two labels of each of two classes are needed"
COMPUTING = "the features of the images are being computed"


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
        self._predicting: Child | None = None
        self._failures: dict[Callable[..., None], str] = {}
        self._stopping, self._features_ended = threading.Event(), threading.Event()
        tasks = (("the preparation", self._prepare), ("learning", self._learn))
        self._threads = [threading.Thread(target=self._attempt, args=task, daemon=True) for task in tasks]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads, and wait for them: Python must not end while one of them computes."""
        self._stopping.set()
        self._features.stop()
        if self._predicting is not None:
            self._predicting.stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(SECONDS_TO_STOP)

    def _attempt(self, task: str, work: Callable[..., None], *arguments: Any) -> None:
        """Do some work; if it fails, the page says so, until the same work succeeds."""
        failure = ""
        try:
            work(*arguments)
        except Exception as error:  # a thread must not end silently: the other work goes on
            log.debug("%s failed", task, exc_info=True)
            failure = "" if self._stopping.is_set() else f"{task} failed: {first_line(error)}"
        with self._session.lock:
            self._failures[work] = failure
            self._session.show(failure="; ".join(filter(None, self._failures.values())) or None)

    def _prepare(self) -> None:
        self._session.show(model={"state": "waiting", "labels": 0, "why": COMPUTING})
        if self._session.run is not None:
            self._attempt(f"predicting with {printable(str(self._session.run))}", self._predict, self._session.run)
        self._attempt("computing features of the images", self._compute)
        if self._failures[self._compute] and not self._of_run:
            self._session.show(model={"state": "waiting", "labels": 0, "why": "the images have no features"})
        self._features_ended.set()

    def _compute(self) -> None:
        def progress(done: int) -> None:
            self._session.show(features={"done": done, "total": len(self._numbers)})

        progress(0)
        self._features.compute(progress, lambda row: self._session.mark_unreadable(int(self._numbers[row])))

    def _predict(self, run: Path) -> None:
        """Predictions of a trained run for all images, its least confident ones first in the order."""
        row_of = {self._session.path(int(number)): row for row, number in enumerate(self._numbers)}
        command = ["predict", str(run), "-", *map(flag, ("null", "json", "probabilities", "quiet"))]
        self._predicting = Child("rankingmatch", *command, request=b"\0".join(map(os.fsencode, row_of)))
        found: dict[str, np.ndarray] = {}
        predicted = np.zeros(len(row_of), bool)
        for answer in self._predicting.answers():
            row = row_of[answer["file"]]
            predicted[row] = True
            for name, value in answer["probabilities"].items():
                found.setdefault(name, np.zeros(len(row_of), np.float32))[row] = value
        if self._stopping.is_set() or not found:
            return
        self._of_run = found
        probabilities, ids = self._mixed(np.zeros((len(row_of), 0), np.float32), np.empty(0, np.int64))
        if not len(ids):
            self._of_run = {}
            raise RunError(f"none of its classes is a class here: {first_few(list(found))}")
        unsure = [row for row in np.argsort(probabilities.max(1), kind="stable").tolist() if predicted[row]]
        ranking = [(int(self._numbers[row]), Reason.UNSURE) for row in unsure]
        self._session.use_model(guesses_of(self._numbers, predicted, probabilities, ids), ranking)
        self._session.show(model={"state": "ready", "labels": 0, "why": f"the model of {printable(str(run))}"})

    def _learn(self) -> None:
        """Train whenever labels or features have changed, in one thread: on a busy machine, several would wait."""
        seen: tuple[int, int] | None = None
        last: tuple[object, ...] | None = None
        with threadpool_limits(1):
            while not self._stopping.wait(SECONDS_BETWEEN_FITS):
                self._attempt("preparing the features", self._smooth)
                now = (self._session.version, int(self._smoothed_rows.sum()))
                if now == seen or not now[1]:
                    continue
                with self._session.lock:
                    lesson = self._lesson()
                key = (now[1], lesson.labels.tobytes(), lesson.checks.tobytes())
                if key != last:
                    started = time.monotonic()
                    self._attempt("training the model behind this page", self._update, lesson)
                    # Half of one core at most, and a fifth while features are computed.
                    pauses = 1 if self._features_ended.is_set() else 4
                    self._stopping.wait(pauses * (time.monotonic() - started))
                seen, last = now, key

    def _smooth(self) -> None:
        """Prepare the features for the model: when all are known, and before that when there are many more."""
        known = self._features.known.copy()
        count, before = int(known.sum()), int(self._smoothed_rows.sum())
        enough = min(FEWEST, len(known)) if before == 0 else GROWTH * before
        if count >= enough or (self._features_ended.is_set() and count > before):
            self._smoothed = smooth_features(np.where(known[:, None], self._features.values, 0), self._session.seed)
            self._smoothed_rows = known

    def _update(self, lesson: Lesson) -> None:
        """A new model, or an order that covers the folder as long as there is none; that of a run is better."""
        session, seed, labels = self._session, self._session.seed, len(lesson.order)
        if not lesson.is_enough:
            if not self._of_run:
                session.use_model(NO_GUESSES, lesson.ranking(seed))
                session.show(model={"state": "waiting", "labels": 0, "why": WAITING})
            return
        if len(session.guesses.numbers) == 0:
            session.show(model={"state": "training", "labels": labels, "why": ""})
        probabilities, ids = lesson.learn(seed, self._method)
        if self._curve is None and not self._stopping.is_set():
            self._curve = lesson.curve(seed, self._method)
        mixed, mixed_ids = self._mixed(probabilities, ids)
        quality = lesson.quality(mixed, mixed_ids, self._curve or [])
        self._curve = quality["curve"] if quality else self._curve
        guesses = guesses_of(lesson.numbers, lesson.known, mixed, mixed_ids)
        ranking = lesson.ranking(seed, mixed, mixed_ids)
        session.use_model(guesses._replace(doubts=session.guesses.doubts), ranking)
        session.show(model={"state": "ready", "labels": labels, "why": ""}, quality=quality)
        if not self._stopping.is_set():
            session.use_model(guesses._replace(doubts=lesson.doubts(seed)), ranking)

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
