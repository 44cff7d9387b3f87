"""What can go wrong, as exceptions whose message names the value and the remedy."""

import difflib
from collections.abc import Iterable


class RankingMatchError(Exception):
    """Base of every error that is the user's to mend: one line, exit code 2."""


class ConfigError(RankingMatchError):
    """A setting or name that cannot be used."""


class DataError(RankingMatchError):
    """Images or labels that cannot be used."""


class InputError(DataError, ValueError):
    """Arrays given to the estimator that cannot be used; a ValueError, too, as scikit-learn's tools expect."""


class RunError(RankingMatchError):
    """A run directory that cannot be read or written."""


class LostProcessError(RankingMatchError):
    """Another process of the run has died, or no longer answers."""


class DivergedError(Exception):
    """A part of the loss, or the weights, are no longer finite; the last good checkpoint is untouched."""

    def __init__(self, step: int, part: str) -> None:
        super().__init__(
            f"training diverged: '{part}' became non-finite at step {step}; a lower --learning-rate may help"
        )
        self.step = step
        self.part = part


class Interrupted(Exception):  # noqa: N818
    """A signal asked to stop; everything is saved. The message says how to go on."""


def expect(condition: bool, what: str) -> None:
    """Raise DataError unless a file is as its format says."""
    if not condition:
        raise DataError(f"{what}; the file is damaged or not the original: remove it and get it again")


def unknown_name(kind: str, name: str, known: Iterable[str], hint: str = "") -> ConfigError:
    """The error for a name that is not in a table, with the nearest ones that are."""
    names = list(known)
    likeness = {candidate: _likeness(name, candidate) for candidate in names}
    near = [candidate for candidate in names if likeness[candidate] >= max([0.5, *likeness.values()])][:3]
    remedy = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(sorted(names))}"
    return ConfigError(f"unknown {kind} '{name}'; {remedy}{hint}")


def _likeness(name: str, candidate: str) -> float:
    """How alike two names are, from 0 to 1; the beginning of a longer name is as good as the whole of it."""
    whole = difflib.SequenceMatcher(None, name, candidate).ratio()
    return max(whole, difflib.SequenceMatcher(None, name, candidate[: len(name) + 1]).ratio())
