"""Metrics of training: summed on the device during steps, turned into plain numbers when they are logged."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rankingmatch.core.errors import DivergedError
from rankingmatch.core.metrics import Errors
from rankingmatch.methods import Losses
from rankingmatch.methods.targets import histogram


@dataclass(frozen=True)
class Metrics:
    """Averages over the steps since the last log."""

    losses: dict[str, float]
    learning_rate: float
    images_per_second: float
    confident: float | None = None  # share of unlabeled images with a confident pseudo-label
    purity: float | None = None  # share of those that are correct, where the true label is known
    class_shares: tuple[float, ...] | None = None  # each class's share of the confident pseudo-labels, if there are any


@dataclass(frozen=True)
class Evaluation:
    """Errors of the EMA weights; None without such images."""

    validation: Errors | None
    test: Errors | None
    best: bool  # the lowest validation error so far


@dataclass(frozen=True)
class Record:
    """What `train` yields after each step, with metrics and an evaluation when they are due."""

    step: int
    steps: int
    seconds: float
    step_seconds: float  # of this step, without the evaluation after it
    metrics: Metrics | None = None
    evaluation: Evaluation | None = None
    verdict: str = ""  # at the last step, which weights were kept and why, if that was judged


@dataclass
class Window:
    """Sums since the last log, kept on the device so that no step waits for a number.

    They also detect divergence: for each loss, `bad` is the first step at which it was not finite, or -1.
    """

    count: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    bad: dict[str, Tensor] = field(default_factory=dict)

    def add(self, step: int, values: dict[str, Tensor], parts: dict[str, Tensor]) -> None:
        """Add the numbers of a step."""
        self.count += 1
        for name, value in {**values, **parts}.items():
            value = value.detach().float()
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        for name, part in parts.items():
            seen = self.bad.get(name, torch.full((), -1, device=part.device))
            now = torch.where(torch.isfinite(part.detach()), -1, step)
            self.bad[name] = torch.where(seen >= 0, seen, now)
        # In the method's order, also after resuming from a checkpoint, which sorts them.
        self.bad = {name: self.bad[name] for name in dict.fromkeys([*parts, *self.bad])}

    def raise_if_diverged(self) -> None:
        """Raise DivergedError for the earliest non-finite part."""
        bad = {name: int(step) for name, step in self.bad.items() if int(step) >= 0}
        if bad:
            part = min(bad, key=lambda name: bad[name])
            raise DivergedError(bad[part], part)

    def metrics(self, learning_rate: float, images_per_second: float) -> Metrics:
        """The averages as plain numbers; waits for the device."""
        of_classes = self.sums.get("classes")
        sums = {name: float(value) for name, value in self.sums.items() if value is not of_classes}
        losses = {name: sums[name] / self.count for name in self.bad}
        if "rows" not in sums:
            return Metrics(losses, learning_rate, images_per_second)
        purity = sums["right"] / sums["known"] if sums["known"] else None
        confident, shares = sums["confident"], None
        if of_classes is not None and confident:
            shares = tuple(count / confident for count in of_classes.tolist())
        return Metrics(losses, learning_rate, images_per_second, confident / sums["rows"], purity, shares)


def pseudo_label_counts(losses: Losses, truth: Tensor, classes: int) -> dict[str, Tensor]:
    """Counts of unlabeled rows: all, confident, confident with known truth, and of those the correct ones.

    "classes" is the (classes,) count of confident rows by pseudo-label.
    """
    if losses.pseudo_labels is None:
        return {}
    confident = losses.pseudo_labels.confident
    known = confident & (truth >= 0)
    right = known & (losses.pseudo_labels.labels == truth)
    rows = torch.tensor(len(confident), device=confident.device)
    counts = {"rows": rows, "confident": confident.sum(), "known": known.sum(), "right": right.sum()}
    return {**counts, "classes": histogram(losses.pseudo_labels.labels, classes, confident)}
