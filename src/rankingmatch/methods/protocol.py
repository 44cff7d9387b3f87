"""What a method is: a module that computes losses from a batch of views."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

__all__ = ["Batch", "Context", "Losses", "Method", "PseudoLabels", "Task"]


@dataclass(frozen=True)
class Task:
    """The sizes that a method knows before training.

    Attributes
    ----------
    classes : int
        The number of classes.
    features : int
        The width of the network's features; 0 if it returns logits only.
    unlabeled : int
        The number of unlabeled images.
    """

    classes: int
    features: int
    unlabeled: int


@dataclass(frozen=True)
class Batch:
    """A batch: the views that the method asked for, in its order.

    Attributes
    ----------
    labeled : tuple of Tensor
        For each name in `Method.labeled_views`, uint8 images (B, c, h, w).
    labels : Tensor
        Labels (B,).
    unlabeled : tuple of Tensor
        For each name in `Method.unlabeled_views`, uint8 images (μB, c, h, w).
    rows : Tensor
        The indices (μB,) of the unlabeled images, from 0 to `Task.unlabeled` - 1.
    """

    labeled: tuple[Tensor, ...]
    labels: Tensor
    unlabeled: tuple[Tensor, ...] = ()
    rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))


@dataclass(frozen=True)
class Context:
    """The state of training that a method may use.

    Attributes
    ----------
    step, steps : int
        The current step, from 0, and the total number of steps.
    teacher : torch.nn.Module
        The EMA model.
    generator : torch.Generator
        A generator on the CPU with a new seed for every step.
    """

    step: int
    steps: int
    teacher: nn.Module
    generator: torch.Generator


@dataclass(frozen=True)
class PseudoLabels:
    """The pseudo-labels of the unlabeled images of a batch.

    Attributes
    ----------
    labels : Tensor
        Labels (n,).
    confident : Tensor
        Booleans (n,): which of them are used.
    """

    labels: Tensor
    confident: Tensor


@dataclass(frozen=True)
class Losses:
    """The losses of a batch.

    Attributes
    ----------
    total : Tensor
        The loss to minimize, a scalar.
    parts : dict of str to Tensor
        Its unweighted terms by name, scalars; they are logged.
    pseudo_labels : PseudoLabels or None
        The pseudo-labels, of which the log shows how many are confident and correct.
    """

    total: Tensor
    parts: dict[str, Tensor]
    pseudo_labels: PseudoLabels | None = None


class Method(nn.Module):
    """Base class of all methods.

    A subclass is a dataclass (``@dataclass(eq=False)``) whose fields, declared with `option`, are its hyperparameters.
    It declares the views it needs and computes its losses in `forward`. Tensors that it keeps between steps are
    buffers, created in `prepare`, so that checkpoints contain them.
    """

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def labeled_views(self) -> tuple[str, ...]:
        """The views of the labeled images: "weak" or "strong", each as often as needed.

        A subclass overrides it by a class variable, or by a property if it depends on a hyperparameter.
        """
        return ("weak",)

    @property
    def unlabeled_views(self) -> tuple[str, ...]:
        """The views of the unlabeled images, as in `labeled_views`."""
        return ("weak", "strong")

    def prepare(self, task: Task) -> None:
        """Create buffers and modules; called once before training.

        Parameters
        ----------
        task : Task
            The number of classes, the width of the features and the number of unlabeled images.
        """

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """Compute the losses of a batch.

        Parameters
        ----------
        model : torch.nn.Module
            The model: ``model(images)`` returns an `Output` with `logits` and `features`.
        batch : Batch
            The views and labels.
        context : Context
            The step, the EMA model and a generator.

        Returns
        -------
        Losses
            The total loss and its parts.
        """
        raise NotImplementedError
