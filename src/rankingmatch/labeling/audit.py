"""How good the model is, from randomly drawn pictures whose labels are never trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Enough", "advice", "enough", "error_interval"]

LABELS_PER_CLASS = 8  # suggested before training
HARDLY = 1.0  # percentage points: a smaller gain from twice as many labels is hardly worth them
FEW_AUDITED, MANY_AUDITED = 20, 50  # one picture of 20 is 5 percentage points


def error_interval(wrong: int, audited: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of an error: it contains the true error at least as often as `level` says.

    Parameters
    ----------
    wrong : int
        The number of audited pictures that the model got wrong.
    audited : int
        The number of audited pictures.
    level : float
        The confidence level.

    Returns
    -------
    low, high : float
        In percent.
    """
    from scipy.special import betaincinv  # importing scipy.stats takes seconds

    if audited == 0:
        return 0.0, 100.0
    tail = (1 - level) / 2
    low = 0.0 if wrong == 0 else float(betaincinv(wrong, audited - wrong + 1, tail))
    high = 1.0 if wrong == audited else float(betaincinv(wrong + 1, audited - wrong, 1 - tail))
    return 100 * low, 100 * high


def advice(curve: Sequence[Mapping[str, float]]) -> str:
    """Say whether more labels are likely to help.

    Parameters
    ----------
    curve : sequence of mapping
        Points with `labels`, `error`, `low`, `high` (in percent) and `audited`, in the order of labels.

    Returns
    -------
    str
        One sentence.
    """
    if not curve or curve[-1]["audited"] < FEW_AUDITED:
        return "Keep labeling: there are too few random checks yet to say how good the model is."
    last = curve[-1]
    earlier = [point for point in curve if point["labels"] <= last["labels"] / 2]
    if not earlier:
        interval = f"between {last['low']:.0f}% and {last['high']:.0f}%"
        return f"The error is {interval}; keep labeling to see whether it falls."
    gain = earlier[-1]["error"] - last["error"]
    latest = f"The last {last['labels'] - earlier[-1]['labels']:.0f} labels"
    if gain < HARDLY and last["audited"] < MANY_AUDITED:
        return f"{latest} did not lower the error measurably, but there are only {last['audited']:.0f} random checks."
    if gain < HARDLY:
        return f"{latest} hardly lowered the error: it is time to train."
    return f"{latest} lowered the error by {gain:.0f} percentage points: more will help."


@dataclass(frozen=True)
class Enough:
    """How many labels there are and how many are suggested before training.

    Attributes
    ----------
    have, suggested : int
        Numbers of labels.
    why : str
        One sentence.
    """

    have: int
    suggested: int
    why: str


def enough(counts: Mapping[str, int]) -> Enough:
    """Suggest a number of labels before training.

    Parameters
    ----------
    counts : mapping of str to int
        The number of labels for training of each class, by its name.

    Returns
    -------
    Enough
        What there is, what is suggested, and why.
    """
    have, suggested = sum(counts.values()), LABELS_PER_CLASS * max(2, len(counts))
    if len(counts) < 2:
        return Enough(have, suggested, "At least two classes are needed.")
    name, fewest = min(counts.items(), key=lambda item: item[1])
    if fewest < 2:
        have_few = "no label" if fewest == 0 else "only one label"
        return Enough(
            have, max(suggested, have + 1), f"The class “{name}” has {have_few}; two of each class are needed."
        )
    if have < suggested:
        return Enough(have, suggested, f"About {LABELS_PER_CLASS} labels per class are a good start.")
    return Enough(have, suggested, "There are enough labels to train.")
