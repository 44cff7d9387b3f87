"""Which picture each client gets next, so that no two people are given the same one."""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

__all__ = ["PictureQueue", "Turn"]

RESERVED = 300.0  # seconds for which a picture belongs to the client that got it
KEPT = 16  # pictures of a client that it may have loaded already when the order changes
RANDOM_CHECK = "random check"
RANDOM_ORDER = "random order"


class Turn(NamedTuple):
    """A picture to be labeled, whether it is an audit picture, and why it was chosen."""

    number: int
    audit: bool
    why: str


class PictureQueue:
    """The pictures to label next.

    Parameters
    ----------
    order
        All pictures, in the order in which they come as long as nothing better is known.
    audit
        The pictures that are reserved for the audit, in their order.
    is_audit_turn
        Whether the k-th picture that is handed out is an audit picture.
    """

    def __init__(self, order: Iterable[int], audit: Iterable[int], is_audit_turn: Callable[[int], bool]) -> None:
        self.audit = dict.fromkeys(audit)
        self._order = [number for number in order if number not in self.audit]
        self._is_audit_turn = is_audit_turn
        self._ranking: list[Turn] = []
        self._handed_out = 0
        self._queues: dict[str, list[Turn]] = {}
        self._owner: dict[int, tuple[str, float]] = {}

    def rank(self, choices: Iterable[tuple[int, str]]) -> None:
        """Use a better order from now on: numbers, and why they were chosen."""
        self._ranking = [Turn(number, False, why) for number, why in choices if number not in self.audit]
        for client, queue in self._queues.items():
            for turn in queue[KEPT:]:
                self._owner.pop(turn.number, None)
            self._queues[client] = queue[:KEPT]

    def take(
        self, client: str, count: int, is_open: Callable[[int], bool], now: float, without: Collection[int] = ()
    ) -> list[Turn]:
        """The next `count` pictures of a client that are still to be labeled, `without` those it has already."""
        self._expire(now)
        queue = [turn for turn in self._queues.get(client, ()) if is_open(turn.number)]
        found = [turn for turn in queue if turn.number not in without]
        while len(found) < count and (turn := self._choose(is_open, without)) is not None:
            self._owner[turn.number] = (client, now)
            queue.append(turn)
            found.append(turn)
        self._queues[client] = queue
        for turn in queue:
            self._owner[turn.number] = (client, now)
        return found[:count]

    def put_back(self, client: str, turn: Turn, now: float) -> None:
        """Give a client a picture again, before all others."""
        queue = [other for other in self._queues.get(client, ()) if other.number != turn.number]
        self._queues[client] = [turn, *queue]
        self._owner[turn.number] = (client, now)

    def _choose(self, is_open: Callable[[int], bool], without: Collection[int]) -> Turn | None:
        def free(number: int) -> bool:
            return number not in self._owner and number not in without and is_open(number)

        audit = (Turn(number, True, RANDOM_CHECK) for number in self.audit if free(number))
        turn = next(audit, None) if self._is_audit_turn(self._handed_out) else None
        turn = turn or next((turn for turn in self._ranking if free(turn.number)), None)
        turn = turn or next((Turn(number, False, RANDOM_ORDER) for number in self._order if free(number)), None)
        turn = turn or next(audit, None)
        self._handed_out += turn is not None
        return turn

    def _expire(self, now: float) -> None:
        """Forget clients that have not asked for a while."""
        expired = {number for number, (_, time) in self._owner.items() if now - time > RESERVED}
        for number in expired:
            del self._owner[number]
        if expired:
            active = {client for client, _ in self._owner.values()}
            self._queues = {client: queue for client, queue in self._queues.items() if client in active}
