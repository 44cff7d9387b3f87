"""What a session computes in the background: features, predictions of a trained run, and the model."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from rankingmatch.core.errors import RankingMatchError
from rankingmatch.core.options import flag
from rankingmatch.data import printable
from rankingmatch.heads.names import DEFAULT_METHOD
from rankingmatch.heads.smoothing import smooth_features
from rankingmatch.labeling import learner
from rankingmatch.labeling.features import Features
from rankingmatch.labeling.guesses import NO_GUESSES
from rankingmatch.labeling.learner import Lesson
from rankingmatch.labeling.selection import Reason, is_audit_turn
from rankingmatch.labeling.session import Session

__all__ = ["Background", "pool_of"]

MOST = 20_000  # pictures with features; of a larger folder, a random part and the labeled ones
FEWEST = 256  # features with which the first model is trained
GROWTH = 1.5  # times as many features as before are worth another preparation
SECONDS_BETWEEN_FITS = 1.0
SECONDS_TO_STOP = 60  # at most; a model takes one or two
WAITING = "two labels of each of two classes are needed"
COMPUTING = "the features of the pictures are being computed"


def pool_of(session: Session, most: int = MOST) -> list[int]:
    """The pictures that the model knows: labeled ones first, then the others in the order in which they are shown."""
    labeled = [session.number_of[file] for file in session.labels.marks if file in session.number_of]
    if len(session.files) > most:
        labeled = labeled[-(most // 2) :]
    return list(dict.fromkeys([*labeled, *_shown_order(session)]))[:most]


def _shown_order(session: Session) -> Iterator[int]:
    """All pictures as they are handed out: audit pictures at their turns among the others."""
    audit = iter(session.audit)
    turn = 0
    for number in session.order.tolist():
        if number not in session.queue.audit:
            if is_audit_turn(turn):
                yield from islice(audit, 1)
                turn += 1
            yield number
            turn += 1
    yield from audit


class Background:
    """Threads that compute features and models, and tell the session.

    Parameters
    ----------
    session
        The session.
    run
        A trained run whose predictions are used until there is a model of the session.
    method
        What trains the model, as in `fit_head`.
    """

    def __init__(self, session: Session, run: Path | None = None, method: str = DEFAULT_METHOD) -> None:
        self._session, self._run, self._method = session, run, method
        pool = pool_of(session)
        self._numbers = np.array(pool, np.int64)
        self._row_of = {number: row for row, number in enumerate(pool)}
        self._features = Features(session.root, [session.files[number] for number in pool])
        self._smoothed = np.zeros((len(pool), 0), np.float32)
        self._smoothed_rows = np.zeros(len(pool), bool)
        self._of_run: dict[str, np.ndarray] | None = None  # probabilities (m,) by the name of the class
        self._predicting: subprocess.Popen[bytes] | None = None
        self._stopping, self._features_ended = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._prepare, self._learn)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads, and wait for them: Python must not end while one of them computes."""
        self._stopping.set()
        self._features.stop()
        if self._predicting is not None:
            self._predicting.terminate()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(SECONDS_TO_STOP)

    # --- features ------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._session.show(
            features={"done": 0, "total": len(self._numbers)},
            model={"state": "waiting", "labels": 0, "why": COMPUTING},
        )
        if self._run is not None:
            self._predict(self._run)
        try:
            self._features.compute(self._show_progress, self._skip)
        except RankingMatchError as error:
            if not self._stopping.is_set():
                self._session.show(model={"state": "waiting", "labels": 0, "why": str(error)})
        self._features_ended.set()

    def _show_progress(self, done: int) -> None:
        self._session.show(features={"done": done, "total": len(self._numbers)})

    def _skip(self, row: int, reason: str) -> None:
        self._session.mark_unreadable(int(self._numbers[row]), reason)

    def _predict(self, run: Path) -> None:
        """Predictions of a trained run for all pictures, its least confident ones first in the order."""
        row_of = {self._session.path(int(number)): row for row, number in enumerate(self._numbers)}
        found: dict[str, np.ndarray] = {}
        predicted = np.zeros(len(row_of), bool)
        for answer in self._predictions(run, list(row_of)):
            row = row_of[answer["file"]]
            predicted[row] = True
            for name, value in answer["probabilities"].items():
                found.setdefault(name, np.zeros(len(row_of), np.float32))[row] = value
        if not found or self._stopping.is_set():
            return
        self._of_run = found
        probabilities, ids = self._mixed(np.zeros((len(row_of), 0), np.float32), np.empty(0, np.int64))
        nothing = np.full(len(row_of), -1)
        lesson = Lesson(self._numbers, probabilities, nothing, nothing, np.empty(0, np.int64), predicted)
        unsure = [row for row in np.argsort(probabilities.max(1), kind="stable").tolist() if predicted[row]]
        ranking = [(int(self._numbers[row]), Reason.UNSURE.value) for row in unsure]
        self._session.use_model(learner.guesses_of(lesson, probabilities, ids), ranking)
        self._session.show(model={"state": "ready", "labels": 0, "why": f"the model of {printable(str(run))}"})

    def _predictions(self, run: Path, paths: list[str]) -> Iterator[dict[str, Any]]:
        """What `rankingmatch predict` prints."""
        command = ["predict", str(run), "-", *map(flag, ("null", "json", "probabilities", "quiet"))]
        with tempfile.TemporaryFile() as names:
            names.write(b"\0".join(map(os.fsencode, paths)))
            names.seek(0)
            self._predicting = process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rankingmatch", *command],
                stdin=names,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the server
            )
            assert process.stdout is not None
            with process:
                for line in process.stdout:
                    yield json.loads(line)

    # --- the model -----------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Train in one thread: on a busy machine, several would wait for each other."""
        with threadpool_limits(1):
            self._learn_until_stopped()

    def _learn_until_stopped(self) -> None:
        """Train whenever labels or features have changed."""
        seen: tuple[int, int] | None = None
        last: tuple[object, ...] | None = None
        curve: list[dict[str, float]] | None = None
        while not self._stopping.wait(SECONDS_BETWEEN_FITS):
            self._smooth()
            now = (self._session.version, int(self._smoothed_rows.sum()))
            if now == seen or not now[1]:
                continue
            with self._session.lock:
                lesson = self._lesson()
            key = (now[1], lesson.labels.tobytes(), lesson.audited.tobytes())
            if key != last:
                started = time.monotonic()
                if lesson.is_enough:
                    curve = self._train(lesson, curve)
                else:
                    self._order(lesson)
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

    def _order(self, lesson: Lesson) -> None:
        """An order that covers the folder, as long as there is no model; that of a run is better."""
        if self._of_run is None:
            self._session.use_model(NO_GUESSES, learner.ranking_of(lesson, None, self._session.seed))
            self._session.show(model={"state": "waiting", "labels": 0, "why": WAITING})

    def _train(self, lesson: Lesson, curve: list[dict[str, float]] | None) -> list[dict[str, float]]:
        session, seed = self._session, self._session.seed
        labels = len(lesson.order)
        if len(session.guesses.numbers) == 0:
            session.show(model={"state": "training", "labels": labels, "why": ""})
        probabilities, ids = learner.learn(lesson, seed, self._method)
        if curve is None and not self._stopping.is_set():
            curve = learner.curve_of(lesson, seed, self._method)
        mixed, mixed_ids = self._mixed(probabilities, ids)
        quality = learner.quality_of(lesson, mixed, mixed_ids, curve or [])
        guesses = learner.guesses_of(lesson, mixed, mixed_ids)
        ranking = learner.ranking_of(lesson, mixed, seed)
        session.use_model(guesses._replace(doubts=session.guesses.doubts), ranking)
        session.show(model={"state": "ready", "labels": labels, "why": ""}, quality=quality)
        if not self._stopping.is_set():
            session.use_model(guesses._replace(doubts=learner.doubts_of(lesson, ids, seed)), ranking)
        return quality["curve"] if quality else curve or []

    def _mixed(self, probabilities: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean of these probabilities and those of the run, over the classes of both."""
        if self._of_run is None:
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
        """The labels of all pictures of the pool; of those whose features are not known, none can be used."""
        known = self._smoothed_rows
        labels, audited = np.where(known, -1, -2), np.full(len(known), -1)
        labels[[self._row_of[number] for number in self._session.audit if number in self._row_of]] = -2
        order = []
        for file, mark in self._session.labels.marks.items():
            row = self._row_of.get(self._session.number_of.get(file, -1))
            if row is None or not known[row]:
                continue
            labels[row] = -2 if mark.class_id is None or mark.part != "train" else mark.class_id
            audited[row] = mark.class_id if mark.class_id is not None and mark.part == "test" else -1
            order += [row] if labels[row] >= 0 else []
        return Lesson(self._numbers, self._smoothed, labels, audited, np.array(order, np.int64), known)
