"""What can go wrong, as exceptions whose message names the value and the remedy.

A message that mentions an option marks its name with `setting`: `str(error)` has the Python name (`learning_rate`),
and an interface that spells options another way (`--learning-rate`) uses `RankingMatchError.spelled`.
"""

import difflib
import errno
import re
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = [
    "ConfigError",
    "DataError",
    "DivergedError",
    "InputError",
    "Interrupted",
    "LostProcessError",
    "RankingMatchError",
    "RunError",
]

# Private-use characters around an option's name in a message: no file name, label or value has them.
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARKED = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")


def setting(name: str) -> str:
    """The name of an option in a message, to be spelled by the interface that shows it."""
    return f"{_OPEN}{name}{_CLOSE}"


class RankingMatchError(Exception):
    """Base of all errors of this package: a message that says what is wrong and how to fix it.

    `resumable` is the directory of the run if it can be resumed.
    """

    def __init__(self, *message: object, resumable: Path | None = None) -> None:
        super().__init__(*message)
        self.resumable = resumable

    def __str__(self) -> str:
        return self.spelled()

    def spelled(self, spell: Callable[[str], str] = str) -> str:
        """The message with the names of options as an interface spells them; by default the names themselves."""
        return _MARKED.sub(lambda mark: spell(mark[1]), super().__str__())

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of the options that the message is about."""
        return tuple(_MARKED.findall(super().__str__()))


class ConfigError(RankingMatchError):
    """A setting or name that cannot be used."""


class DataError(RankingMatchError):
    """Images or labels that cannot be used."""


class InputError(DataError, ValueError):
    """Arrays given to the estimator that cannot be used; also a ValueError, as scikit-learn's tools expect."""


class RunError(RankingMatchError):
    """A run directory that cannot be read or written."""


class LostProcessError(RankingMatchError):
    """Another process of the run has died or no longer responds."""


class DivergedError(RankingMatchError):
    """A part of the loss, or the weights, became non-finite; the last good checkpoint is untouched."""

    def __init__(self, step: int, part: str) -> None:
        super().__init__(step, part)
        self.step = step
        self.part = part

    def spelled(self, spell: Callable[[str], str] = str) -> str:
        """The message with the name of the option that may help."""
        return (
            f"training diverged: '{self.part}' became non-finite at step {self.step}; "
            f"try a lower {spell('learning_rate')}"
        )


class Interrupted(RankingMatchError):  # noqa: N818
    """Training was stopped by a signal; everything is saved."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the memory of the CPU or of an accelerator is exhausted; libraries have plain errors for the CPU."""
    own = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    # Of torch, of oneDNN, and of the system where a library is loaded.
    said = ("DefaultCPUAllocator", "could not create a primitive\n", "failed to map segment")
    return own or (isinstance(error, RuntimeError | ImportError) and any(text in f"{error}\n" for text in said))


def writing_remedy(error: OSError, place: str = "it") -> str:
    """What to do when a file or directory cannot be written."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"make {place} writable"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return "free some space there" if full else f"check {place}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def require(condition: bool, problem: str) -> None:
    """Raise DataError unless a dataset's original file is as its format says."""
    if not condition:
        raise DataError(f"{problem}; the file is damaged or not the original: delete it and download it again")


def unknown_name(kind: str, name: str, known: Iterable[str], hint: str = "") -> ConfigError:
    """The error for a name that is not in a table, with the nearest names that are."""

    def similarity(candidate: str) -> float:  # the beginning of a longer name counts as much as the whole name
        parts = (candidate, candidate[: len(name) + 1])
        return max(difflib.SequenceMatcher(None, name, part).ratio() for part in parts)

    found = {candidate: similarity(candidate) for candidate in known}
    near = [candidate for candidate, ratio in found.items() if ratio >= max([0.5, *found.values()])][:3]
    remedy = f"did you mean {' or '.join(map(repr, near))}?" if near else f"choose from: {', '.join(sorted(found))}"
    return ConfigError(f"unknown {kind} '{name}'; {remedy}{hint}")
