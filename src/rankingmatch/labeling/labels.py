"""The labels of a session: what the events of a journal add up to, and how each step is undone."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from rankingmatch.data.label_journal import CLASS_PREFIX, LabelEvent

__all__ = ["LabelState", "Mark", "Step", "steps_of"]


class Mark(NamedTuple):
    """What is known about a file.

    Attributes
    ----------
    class_id
        The class; None without a label.
    part
        "train", "test", "none" (of none of the classes), or empty for a file that was skipped.
    origin
        Where the label comes from.
    """

    class_id: int | None
    part: str
    origin: str

    @property
    def skipped(self) -> bool:
        """Whether the file was skipped."""
        return self.class_id is None and self.part != "none"


class Step(NamedTuple):
    """What undoes a step: events, without a time, and the file to show again."""

    inverse: tuple[LabelEvent, ...]
    file: str


class LabelState:
    """Classes, labels and undo steps.

    It changes only through `apply`, with the events that are in the journal. So a session that is started again has the
    same state.

    Attributes
    ----------
    classes
        Names by id, in the order in which they were added. The id of a class never changes.
    marks
        What is known about files, the most recently labeled ones last.
    undo
        The steps that can be undone, the latest one last.
    """

    def __init__(self) -> None:
        self.classes: dict[int, str] = {}
        self.marks: dict[str, Mark] = {}
        self.undo: list[Step] = []
        self._next_id = 0
        self._former: dict[str, int] = {}  # ids of classes that were merged or removed
        self._renamed: dict[str, str] = {}

    def apply(self, events: list[LabelEvent]) -> None:
        """Apply the events of one step, and record how to undo it."""
        inverse: list[LabelEvent] = []
        for event in events:
            # What happened last is undone first.
            inverse[:0] = self._apply_label(event) if event.file else self._apply_class(event)
        origin = events[-1].origin
        if origin == "undo":
            del self.undo[-1:]
        elif origin != "given":
            self.undo.append(Step(tuple(inverse), events[-1].file))

    def class_id(self, name: str) -> int | None:
        """The id of a class; None if there is no class of this name."""
        return next((number for number, known in self.classes.items() if known == name), None)

    def current_name(self, name: str) -> str:
        """The name that a class has now, if it was renamed or merged."""
        seen = {name}
        while self.class_id(name) is None and self._renamed.get(name, name) not in seen:
            name = self._renamed[name]
            seen.add(name)
        return name

    def _apply_label(self, event: LabelEvent) -> list[LabelEvent]:
        old = self.marks.pop(event.file, None)  # it is inserted again, as the latest one
        if event.label or event.part == "none" or event.origin == "skip":
            class_id = self._ensure_class(event.label) if event.label else None
            part = (event.part or "train") if event.label else event.part if event.part == "none" else ""
            self.marks[event.file] = Mark(class_id, part, event.origin)
        return [self._restoring(event.file, old)]

    def _restoring(self, file: str, old: Mark | None) -> LabelEvent:
        """The event that gives a file its former label, or none."""
        if old is None:
            return LabelEvent(file)
        name = "" if old.class_id is None else self.classes[old.class_id]
        return LabelEvent(file, name, old.part)

    def _apply_class(self, event: LabelEvent) -> list[LabelEvent]:
        old, new = event.old_name, event.label
        if not old:
            return self._add(new)
        old_id, new_id = self.class_id(old), self.class_id(new)
        if old_id is None or old == new:
            return []
        if not new:
            return self._remove(old_id)
        self._renamed[old] = new
        self._renamed.pop(new, None)
        if new_id is None:
            self.classes[old_id] = new
            return [LabelEvent("", old, CLASS_PREFIX + new)]
        return self._merge(old_id, new_id)

    def _add(self, name: str) -> list[LabelEvent]:
        if self.class_id(name) is not None:
            return []
        self._ensure_class(name)
        return [LabelEvent("", "", CLASS_PREFIX + name)]

    def _remove(self, class_id: int) -> list[LabelEvent]:
        name = self.classes.pop(class_id)
        self._former[name] = class_id
        self.marks = {file: mark for file, mark in self.marks.items() if mark.class_id != class_id}
        return [LabelEvent("", name, CLASS_PREFIX)]

    def _merge(self, old_id: int, new_id: int) -> list[LabelEvent]:
        moved = [(file, mark) for file, mark in self.marks.items() if mark.class_id == old_id]
        inverse = [self._restoring(file, mark) for file, mark in moved]
        name = self.classes.pop(old_id)
        self._former[name] = old_id
        for file, mark in moved:
            self.marks[file] = mark._replace(class_id=new_id)
        return [LabelEvent("", name, CLASS_PREFIX), *inverse]

    def _ensure_class(self, name: str) -> int:
        """The id of a class, which is added if necessary; one that was removed gets its former id."""
        known = self.class_id(name)
        if known is not None:
            return known
        class_id = self._former.pop(name, None)
        if class_id is None:
            class_id, self._next_id = self._next_id, self._next_id + 1
        self.classes[class_id] = name
        self.classes = dict(sorted(self.classes.items()))
        return class_id


def steps_of(events: Iterable[LabelEvent]) -> Iterator[list[LabelEvent]]:
    """Events grouped into steps: consecutive rows with the same time."""
    for time, group in groupby(events, key=lambda event: event.time):
        if time:
            yield list(group)
        else:  # written by hand
            yield from ([event] for event in group)
