"""What a method is: a module that computes losses from a batch of views; and the table of methods."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, dataclass_transform

import torch
from torch import Tensor, nn

from rankingmatch.core.options import option
from rankingmatch.core.schedule import linear_ramp


@dataclass(frozen=True)
class Task:
    """What a method knows before training.

    Attributes
    ----------
    classes : int
        The number of classes.
    features : int
        The width of the network's features; 0 if it returns logits only.
    unlabeled, labeled : int
        The numbers of unlabeled and of labeled images.
    label_counts : tuple of int
        The number of labels of each class, as batches draw them; empty if it is not known.
    model : torch.nn.Module or None
        The model, for a method with a part that must fit it; None if it gets outputs of frozen layers, not images.
    """

    classes: int
    features: int
    unlabeled: int
    labeled: int = 0
    label_counts: tuple[int, ...] = ()
    model: nn.Module | None = None


@dataclass(frozen=True)
class Batch:
    """A batch: the views that the method asked for, in its order.

    Attributes
    ----------
    labeled, unlabeled : tuple of Tensor
        For each name in `Method.labeled_views` or `unlabeled_views`, uint8 images (B, c, h, w) or (μB, c, h, w).
    labels : Tensor
        Labels (B,).
    rows : Tensor
        The indices (μB,) of the unlabeled images, from 0 to `Task.unlabeled` - 1.
    labeled_rows : Tensor
        The indices (B,) of the labeled images, from 0 to `Task.labeled` - 1; -1 for those in `Method.given_labels`.
    """

    labeled: tuple[Tensor, ...]
    labels: Tensor
    unlabeled: tuple[Tensor, ...] = ()
    rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    labeled_rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))


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

    def ramp(self, fraction: float) -> float:
        """The linear increase of a weight from 0 to 1 over a fraction of training."""
        return linear_ramp(self.step, self.steps, fraction)


@dataclass(frozen=True)
class PseudoLabels:
    """The pseudo-labels of the unlabeled images of a batch.

    Attributes
    ----------
    labels, confident : Tensor
        Labels (n,), and booleans (n,): which of them are used.
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

    reference: ClassVar[str] = ""
    good_for: ClassVar[str] = ""
    row: ClassVar[tuple[str, str, str]] = ("", "", "")  # augmentation, post-processing and note, as in `MethodInfo`

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def labeled_views(self) -> tuple[str, ...]:
        """The views of the labeled images: "weak", "medium" or "strong", each as often as needed.

        A subclass overrides it by a class variable, or by a property if it depends on a hyperparameter.
        """
        return ("weak",)

    @property
    def unlabeled_views(self) -> tuple[str, ...]:
        """The views of the unlabeled images, as in `labeled_views`."""
        return ("weak", "strong")

    @property
    def given_labels(self) -> Tensor | None:
        """Labels (unlabeled images,) that training has given to unlabeled images, -1 for those without; None if none.

        Such images are also drawn as labeled ones.
        """
        return None

    def prepare(self, task: Task) -> None:
        """Create buffers and modules; called once before training."""

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """Compute the losses of a batch; ``model(images)`` returns an `Output` with `logits` and `features`."""
        losses: Losses = super().__call__(model, batch, context)
        return losses

    def forward(self, *args: Any, **kwargs: Any) -> Losses:
        """Compute the losses of a batch, from the same arguments; those of `Rebalanced` get outputs, not a model."""
        raise NotImplementedError


@dataclass(frozen=True)
class MethodInfo:
    """A method and its row in the paper's comparison of methods (Table 6).

    Attributes
    ----------
    method : type of Method
        The class.
    reference, good_for : str
        First author and year; when to choose it, in a few words.
    augmentation, post_processing : str
        The views it uses; what it does with predictions before they become targets.
    note, ranking_loss : str
        Its distinguishing feature; the ranking loss, or "none".
    variant : str
        The value of the field `ranking`, if one class implements several methods.
    preset : mapping
        Settings outside the method that have another default with it, such as the number of unlabeled images.
    dataset_presets : mapping
        Settings and hyperparameters that its authors choose for a dataset, by the name of the dataset.
    """

    method: type[Method]
    reference: str = ""
    good_for: str = ""
    augmentation: str = ""
    post_processing: str = ""
    note: str = ""
    ranking_loss: str = "none"
    variant: str = ""
    preset: Mapping[str, Any] = field(default_factory=dict)
    dataset_presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


METHODS: dict[str, MethodInfo] = {}
AnyMethod = TypeVar("AnyMethod", bound=Method)


@dataclass_transform(eq_default=False)
def register_method(name: str, **info: Any) -> Callable[[type[AnyMethod]], type[AnyMethod]]:
    """Decorator of a method's class: makes it a dataclass, and adds it to `METHODS`, also under several names.

    `info` are attributes of its `MethodInfo` that belong to this name; the others are those of the class.
    """

    def register(method: type[AnyMethod]) -> type[AnyMethod]:
        if "__dataclass_fields__" not in vars(method):
            method = dataclass(eq=False)(method)
        of_class = dict(zip(("augmentation", "post_processing", "note"), method.row, strict=True))
        of_class |= {"reference": method.reference, "good_for": method.good_for}
        METHODS[name] = MethodInfo(method, **{**of_class, **info})
        return method

    return register


# Hyperparameters that several methods have: default, help, interval.
_SHARED: dict[str, tuple[Any, str, str]] = {
    "threshold": (0.95, "τ: use a pseudo-label if its probability is at least this.", "(0, 1]"),
    "unlabeled_weight": (1.0, "λ_u: weight of the unlabeled loss.", "[0, inf)"),
    "ramp": (
        0.4,
        "Fraction of training over which the weight of the unlabeled loss increases linearly from 0 to its full value.",
        "[0, 1]",
    ),
    "guesses": (2, "K: number of views of an unlabeled image that share one guessed label.", "[1, 64]"),
    "sharpening": (0.5, "T: temperature that sharpens targets; 1 leaves them unchanged.", "(0, inf)"),
    "alpha": (0.75, "α: the mixing weights of MixUp are drawn from Beta(α, α).", "(0, inf)"),
    "smoothing": (
        0.9,
        "α: weight of an image's own prediction in its target; 1 - α is that of similar images in memory.",
        "[0, 1]",
    ),
    "similarity_temperature": (0.2, "t: temperature of the similarities between embeddings.", "(0, inf)"),
    "dimensions": (64, "Dimensions of the embeddings.", "[1, 65536]"),
    "tsa": (
        "none",
        "Training signal annealing: ignore labeled images whose predicted probability of the true class exceeds a "
        "threshold that rises on this schedule.",
        "",
    ),
    "statistics_decay": (
        None,
        "Decay of the moving averages of the model's predictions; by default 0.999 for a full run, less for a shorter "
        "one.",
        "[0, 1)",
    ),
}


def shared(name: str, default: Any = ...) -> Any:
    """A hyperparameter that several methods have, declared once; a method may give it another default."""
    usual, help, interval = _SHARED[name]
    return option(usual if default is ... else default, help, interval=interval)
