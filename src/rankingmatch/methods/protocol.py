"""What a method is: a small module that turns a batch of views into losses."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Task:
    """What a method may know before training, to size its state."""

    classes: int
    features: int  # width of the network's representation; 0 if the network returns logits only
    unlabeled: int  # rows in the unlabeled pool


@dataclass(frozen=True)
class Batch:
    """The views a method asked for, in its order; each is (n, c, h, w) uint8."""

    labeled: tuple[Tensor, ...]  # one view per name in `labeled_views`
    labels: Tensor  # (B,)
    unlabeled: tuple[Tensor, ...] = ()  # one view per name in `unlabeled_views`
    rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))  # (μB,) places in the pool


@dataclass(frozen=True)
class Context:
    """Where training stands. `teacher` is the EMA model; `generator` is fresh for every step."""

    step: int
    steps: int
    teacher: nn.Module
    generator: torch.Generator


@dataclass(frozen=True)
class PseudoLabels:
    """What the model believes of the unlabeled images of a batch."""

    labels: Tensor  # (n,)
    confident: Tensor  # (n,) of bool: those that are learned from


@dataclass(frozen=True)
class Losses:
    """The loss to minimise, its parts as they are named in the paper, and the pseudo-labels behind it."""

    total: Tensor
    parts: dict[str, Tensor]
    pseudo_labels: PseudoLabels | None = None


class Method(nn.Module):
    """Base of all methods.

    A subclass is a dataclass (`@dataclass(eq=False)`) whose fields, made by `option`, are its hyper-parameters;
    it says which views it wants and computes its losses in `forward`. State belongs into buffers, made in
    `prepare`: a checkpoint then has it by itself.
    """

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def labeled_views(self) -> tuple[str, ...]:
        """The views of labeled images that it wants. Overridden by a class variable, or by a property."""
        return ("weak",)

    @property
    def unlabeled_views(self) -> tuple[str, ...]:
        """The views of unlabeled images that it wants; a property where a hyper-parameter decides them."""
        return ("weak", "strong")

    def prepare(self, task: Task) -> None:
        """Make buffers and heads, now that the sizes are known."""

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """The losses of a batch. `model(images)` returns an Output with `logits` and `features`."""
        raise NotImplementedError
