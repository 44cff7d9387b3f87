"""The state of a labeling session: images, labels, queue, and what the page shows. No HTTP, and no threads."""

import hashlib
import math
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from rankingmatch.core.errors import ConfigError
from rankingmatch.core.names import printable
from rankingmatch.data.label_journal import CLASS_PREFIX, LabelEvent
from rankingmatch.labeling.journal import Journal, JournalError, LabelState, Mark
from rankingmatch.labeling.model import Guesses
from rankingmatch.labeling.random_checks import draw_checks, enough
from rankingmatch.labeling.selection import ImageQueue

KEYS = "1234567890qweryuiopdfjklcvb"  # of classes; the page uses the other keys for commands
LONGEST_NAME = 100
PAGE = 24  # images on a page of the grid


class RequestError(ConfigError):
    """A request that cannot be carried out, in one sentence."""


def check_class_name(name: object) -> str:
    """The name of a class without spaces around it; raise RequestError if it cannot be used."""
    name = name.strip() if isinstance(name, str) else ""
    if not 1 <= len(name) <= LONGEST_NAME:
        raise RequestError(f"the name of a class must have 1 to {LONGEST_NAME} characters")
    # Control characters, halves of characters, private characters, and line breaks.
    if any(unicodedata.category(character) in ("Cc", "Cs", "Co", "Zl", "Zp") for character in name):
        raise RequestError("the name of a class must not have control characters")
    return name


def _shown_guess(guess: tuple[int, float]) -> dict[str, float]:
    return {"class": guess[0], "confidence": round(guess[1], 4)}


class Session:
    """A labeling session. All methods may be called from any thread.

    The index of an image in `files`, which are sorted and relative to the folder, is its number. `given` are events
    that are known without the journal: labels from class folders, and classes. They are saved with the first label. A
    trained `run` may have predictions to begin with.
    """

    def __init__(
        self,
        root: Path,
        files: list[str],
        journal: Journal,
        given: list[LabelEvent],
        seed: int = 0,
        run: Path | None = None,
    ) -> None:
        self.root, self.files, self.journal, self.seed, self.run = root, files, journal, seed, run
        self.lock = threading.RLock()
        self.version = 1
        # Numbers are valid for one scan of the folder; a page that is older than a change must not use them.
        self.scan = hashlib.sha256("\0".join(files).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self.number_of = {file: number for number, file in enumerate(files)}
        self.labels = LabelState()
        # Consecutive rows with the same time are one step; a row without a time was written by hand.
        for _, step in groupby(journal.events, key=lambda event: event.time or id(event)):
            self.labels.apply(list(step))
        self._last_time = journal.events[-1].time if journal.events else ""
        moment = self._now()
        known = {event.file for event in journal.events}
        self._pending: list[LabelEvent] = []  # those of the given events that the journal does not have
        for event in given:
            name = self.labels.current_name(event.label)
            if event.file not in known if event.file else self.labels.class_id(name) is None:
                self._pending.append(event._replace(label=name, time=moment, origin="given"))
                self.labels.apply(self._pending[-1:])
                self._last_time = moment
        self._unreadable: set[int] = set()
        self.guesses: Guesses = {}
        self.doubts: Guesses = {}  # what the model predicts for labels that it contradicts, the most confident first
        waiting = {"state": "waiting", "labels": 0, "why": "two labels of each class are needed"}
        self._shown: dict[str, Any] = {"features": {"done": 0, "total": len(files)}, "model": waiting}
        self._shown |= dict.fromkeys(("quality", "training", "problem", "failure"))
        marks = {number: self.mark(number) for number in draw_checks(len(files), seed).tolist()}
        self.checks = [number for number, mark in marks.items() if mark is None or mark.part != "train"]
        self.queue = ImageQueue(np.random.default_rng(seed).permutation(len(files)).tolist(), self.checks)

    def mark(self, number: int) -> Mark | None:
        """What is known about an image."""
        return self.labels.marks.get(self.files[number])

    def path(self, number: int) -> str:
        """The path of an image; raise RequestError if there is none of this number."""
        return str(self.root / self.files[self._checked(number)])

    def next(self, client: str, count: int, without: Collection[int] = ()) -> list[dict[str, Any]]:
        """The images that a client labels next."""
        with self.lock:
            turns = self.queue.take(client, count, self._is_open, time.monotonic(), without)
            return [self.image(number, why) for number, why in turns]

    def _is_open(self, number: int) -> bool:
        return number not in self._unreadable and self.files[number] not in self.labels.marks

    def _can_be_accepted(self, number: int) -> bool:
        return self._is_open(number) and number not in self.queue.checks

    def _is_check(self, number: int) -> bool:
        mark = self.mark(number)
        return mark.part == "test" if mark and mark.class_id is not None else number in self.queue.checks

    def image(self, number: int, why: str = "") -> dict[str, Any]:
        """An image as the page sees it. A random check has no guess, which would bias its label."""
        with self.lock:
            mark, check, guess = self.mark(number), self._is_check(number), self.guesses.get(number)
            hidden = guess is None or guess[0] not in self.labels.classes or (check and mark is None)
            return {
                "number": number,
                "name": printable(self.files[number]),
                "check": check,
                "guess": None if guess is None or hidden else _shown_guess(guess),
                "label": None if mark is None else "none" if mark.part == "none" else mark.class_id,
                "skipped": mark is not None and mark.skipped,
                "why": why or (mark.origin if mark else ""),
            }

    def labeled_before(self, at: int) -> dict[str, Any] | None:
        """The image that was labeled before another one, or last; None if there is none."""
        with self.lock:
            numbers = [self.number_of[file] for file in self.labels.marks if file in self.number_of]
            position = numbers.index(at) if at in numbers else len(numbers)
            return self.image(numbers[position - 1]) if position else None

    def grid(self, class_id: int, *, sure: bool, page: int) -> dict[str, Any]:
        """A page of the unlabeled images that the model predicts as a class, and the number of pages."""
        with self.lock:
            self._class_name(class_id)  # there is such a class
            found = [number for number, (guess, _) in self.guesses.items() if guess == class_id]
            found.sort(key=lambda number: self.guesses[number][1], reverse=sure)
            return self._page([number for number in found if self._can_be_accepted(number)], page)

    def mistakes(self, page: int) -> dict[str, Any]:
        """A page of the labels that the model contradicts, and the number of pages."""
        with self.lock:
            found = []
            for number, (class_id, _) in self.doubts.items():
                mark = self.mark(number)
                doubtful = mark and mark.class_id not in (None, class_id) and mark.origin != "kept"
                if doubtful and class_id in self.labels.classes:
                    found.append(number)
            answer = self._page(found, page)
            for image in answer["images"]:
                image["guess"] = _shown_guess(self.doubts[image["number"]])
            return answer

    def _page(self, numbers: list[int], page: int) -> dict[str, Any]:
        shown = [self.image(number) for number in numbers[page * PAGE : (page + 1) * PAGE]]
        return {"images": shown, "pages": math.ceil(len(numbers) / PAGE)}

    def state(self) -> dict[str, Any]:
        """All that the page shows, as plain values."""
        with self.lock:
            present = [mark for file, mark in self.labels.marks.items() if file in self.number_of]
            counts = Counter(mark.class_id for mark in present)
            trained = Counter(mark.class_id for mark in present if mark.part == "train")
            names = {class_id: printable(name) for class_id, name in self.labels.classes.items()}
            return {
                "version": self.version,
                "scan": self.scan,
                "folder": printable(self.root.name),
                "total": len(self.files),
                "classes": [
                    {"id": class_id, "name": name, "key": KEYS[class_id : class_id + 1], "count": counts[class_id]}
                    for class_id, name in names.items()
                ],
                "labeled": sum(mark.class_id is not None for mark in present),
                "none": sum(mark.part == "none" for mark in present),
                "skipped": sum(mark.skipped for mark in present),
                "undo": len(self.labels.undo),
                "enough": enough({name: trained[class_id] for class_id, name in names.items()}),
                **self._shown,
            }

    def label(self, number: object, choice: object, *, kept: bool = False) -> None:
        """Give an image a class, "none", or None: skip it. `kept`: a label that the model contradicts is confirmed."""
        with self.lock:
            number = self._checked(number)
            old, check = self.mark(number), self._is_check(number)
            event = LabelEvent(self.files[number], origin="audit" if check else "hand")
            if choice is None:
                event = event._replace(origin="skip")
            elif choice == "none":
                event = event._replace(part="none")
            else:
                name = self._class_name(choice)
                event = event._replace(label=name, part="test" if check else "train")
                if kept and old is not None and old.class_id == choice:
                    event = event._replace(origin="kept")
            # A page that got no answer repeats its request; that must not be a second step.
            known = old and (self.labels.name_of(old), old.part, old.origin)
            if known != (event.label, event.part, event.origin):
                self._save([event])

    def accept(self, class_id: object, numbers: object) -> None:
        """Give several images the class that the model predicts, as one step; labeled ones are left alone."""
        if not isinstance(numbers, list):
            raise RequestError("numbers must be a list")
        with self.lock:
            name = self._class_name(class_id)
            unique = dict.fromkeys(self._checked(number) for number in numbers)
            files = [self.files[number] for number in unique if self._can_be_accepted(number)]
            self._save([LabelEvent(file, name, "train", origin="accepted") for file in files])

    def undo(self, client: str) -> int | None:
        """Undo the last step; the result is the image to show again, or None."""
        with self.lock:
            if not self.labels.undo:
                raise RequestError("there is nothing to undo")
            inverse, file = self.labels.undo[-1]
            self._save([event._replace(origin="undo") for event in inverse])
            number = self.number_of.get(file)
            if number is not None and self._is_open(number):
                self.queue.put_back(client, number, time.monotonic())
            return number

    def add_class(self, name: object) -> None:
        """Add a class."""
        with self.lock:
            self._save([LabelEvent("", self._new_name(name), CLASS_PREFIX, origin="hand")])

    def rename_class(self, class_id: object, name: object) -> None:
        """Rename a class."""
        with self.lock:
            old = self._class_name(class_id)
            if name != old:
                self._save([LabelEvent("", self._new_name(name), CLASS_PREFIX + old, origin="rename")])

    def merge_classes(self, class_id: object, into: object) -> None:
        """Give all images of a class another class, and remove the first one."""
        with self.lock:
            old, new = self._class_name(class_id), self._class_name(into)
            if old == new:
                raise RequestError("a class cannot be merged with itself")
            self._save([LabelEvent("", new, CLASS_PREFIX + old, origin="rename")])

    def _new_name(self, given: object) -> str:
        name = check_class_name(given)
        if self.labels.class_id(name) is not None:
            raise RequestError(f"there is already a class “{name}”; choose another name, or merge the two")
        return name

    def _checked(self, number: object) -> int:
        if type(number) is not int or not 0 <= number < len(self.files):
            raise RequestError(f"there is no image {str(number)[:20]!r}; reload the page")
        return number

    def _class_name(self, class_id: object) -> str:
        if type(class_id) is not int or class_id not in self.labels.classes:
            raise RequestError(f"there is no class {str(class_id)[:20]!r} any more; choose another one")
        return self.labels.classes[class_id]

    def _save(self, events: list[LabelEvent]) -> None:
        """Write a step to the journal, and then apply it; if it cannot be written, nothing changes."""
        if not events:
            return
        moment = self._now()
        step = [event._replace(time=moment) for event in events]
        try:
            self.journal.append([*self._pending, *step])
        except JournalError as error:
            self.show(problem=str(error))
            raise
        self._pending, self._last_time = [], moment
        self.labels.apply(step)
        self._shown["problem"] = None
        self.version += 1

    def copy_journal(self, target: Path) -> None:
        """Write the labels so far to another file, the given ones among them."""
        with self.lock:
            self.journal.append(self._pending)
            self._pending = []
            self.journal.copy(target)

    def _now(self) -> str:
        """The time in UTC, never that of the step before, because consecutive rows with one time are one step."""
        moment = datetime.now(UTC)
        while moment.isoformat(timespec="microseconds") == self._last_time:
            moment += timedelta(microseconds=1)
        return moment.isoformat(timespec="microseconds")

    def show(self, **values: Any) -> None:
        """Change what the page shows: features, model, quality, training, problem or failure."""
        with self.lock:
            if any(self._shown[name] != value for name, value in values.items()):
                self._shown |= values
                self.version += 1

    def use_model(self, guesses: Guesses, ranking: Iterable[tuple[int, str]], doubts: Guesses) -> None:
        """Use new predictions, and a new order of the images."""
        with self.lock:
            self.guesses, self.doubts = guesses, doubts
            self.queue.rank(ranking)
            self.version += 1

    def mark_unreadable(self, number: int) -> None:
        """Do not hand out an image that cannot be shown."""
        with self.lock:
            if number not in self._unreadable:
                self._unreadable.add(number)
                self.version += 1
