"""What a remedy for unbalanced classes is: it changes the outputs from which a method computes its losses."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from rankingmatch.methods.passes import ViewOutputs
from rankingmatch.methods.protocol import Batch, Context, Task
from rankingmatch.methods.targets import last_occurrence

__all__ = ["NoRemedy", "Remedy", "label_distribution", "remember", "safe_log"]


class Remedy(nn.Module):
    """Base class of all remedies. What a remedy keeps between steps are buffers, which checkpoints contain.

    Parameters
    ----------
    task : Task
        The number of classes, and how many labels each has.
    strength : float
        Its strength, if it has one.
    """

    usual_strength: ClassVar[float | None] = None  # that of its paper; None if it has none
    needs_features: ClassVar[bool] = False

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__()
        self.task = task
        self.strength = strength

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Change the outputs of a batch.

        Parameters
        ----------
        outputs : ViewOutputs
            The network's outputs for labeled, weak and strong views.
        batch : Batch
            The views and labels.
        context : Context
            The step, the EMA model and a generator.

        Returns
        -------
        ViewOutputs
            What the method computes its losses from; pseudo-labels come from its `weak_logits`.
        """
        raise NotImplementedError


class NoRemedy(Remedy):
    """Changes nothing."""

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Return the outputs as they are."""
        return outputs


def label_distribution(task: Task) -> Tensor:
    """π (classes,): the share of each class among the labels; uniform if their numbers are not known.

    A class without labels counts as one label, so that logarithms are finite.
    """
    counts = torch.tensor(task.label_counts or (1,) * task.classes, dtype=torch.get_default_dtype()).clamp(min=1)
    return counts / counts.sum()


def remember(memory: Tensor, rows: Tensor, values: Tensor) -> None:
    """Store the values (n, …) of a batch at rows (n,) of the memory; if a row occurs twice, the later one counts."""
    memory[rows] = values[last_occurrence(rows)].to(memory.dtype)


def safe_log(probabilities: Tensor) -> Tensor:
    """ln p, finite where p = 0."""
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()
