"""How the views of a batch are passed through the network."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from rankingmatch.methods.protocol import Batch
from rankingmatch.methods.targets import pseudo_label
from rankingmatch.networks import Classifier, Output

__all__ = [
    "ViewOutputs",
    "WeakPass",
    "interleaved_logits",
    "joint_logits",
    "joint_outputs",
    "mean_probabilities",
    "perturbed_logits",
    "running_statistics_kept",
    "view_outputs",
]

WeakPass = Literal["joint", "running", "batch"]


class ViewOutputs(NamedTuple):
    """The network's outputs for the three views of FixMatch and related methods.

    Attributes
    ----------
    labeled : Output
        The output for the labeled images.
    weak_logits : Tensor
        The logits (μB, classes) of the weak views, without gradients.
    strong : Output
        The output for the strong views.
    weak_features : Tensor or None
        The features (μB, width) of the weak views, without gradients.
    labeled_shift, strong_shift : Tensor or None
        What a remedy for unbalanced classes adds to the logits (classes,) in the cross-entropies.
    extra_losses : mapping of str to Tensor
        The losses of such a remedy, to be added to the total.
    """

    labeled: Output
    weak_logits: Tensor
    strong: Output
    weak_features: Tensor | None = None
    labeled_shift: Tensor | None = None
    strong_shift: Tensor | None = None
    extra_losses: Mapping[str, Tensor] = MappingProxyType({})

    @property
    def labeled_logits(self) -> Tensor:
        """The logits (B, classes) of the labeled loss."""
        return self.labeled.logits if self.labeled_shift is None else self.labeled.logits + self.labeled_shift

    @property
    def strong_logits(self) -> Tensor:
        """The logits (μB, classes) of the unlabeled loss."""
        return self.strong.logits if self.strong_shift is None else self.strong.logits + self.strong_shift

    def with_extra_losses(self, total: Tensor) -> Tensor:
        """The total loss of a method, plus the losses of a remedy."""
        return sum(self.extra_losses.values(), start=total)


def view_outputs(model: nn.Module, batch: Batch, weak_pass: WeakPass, skip_below: float | None = None) -> ViewOutputs:
    """Pass labeled, weak and strong views through the network.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    batch : Batch
        One view of the labeled images, and the views "weak" and "strong" of the unlabeled ones.
    weak_pass : {"joint", "running", "batch"}
        "joint": all views in one pass, with common BatchNorm statistics. Otherwise the weak views have a pass of their
        own without gradients, which saves their backward pass and memory; they are normalized by the running statistics
        ("running") or by their own batch ("batch").
    skip_below : float, optional
        Skip a strong view if the confidence of its weak view is below this; its outputs are 0. Not with "joint".

    Returns
    -------
    ViewOutputs
        The outputs of the three views.
    """
    (labeled,), (weak, strong) = batch.labeled, batch.unlabeled
    # With fixed BatchNorm statistics, a pass of its own gives the same outputs, and needs no graph.
    statistics_are_fixed = isinstance(model, Classifier) and model.takes_maps
    if weak_pass == "joint" and not statistics_are_fixed:
        of_labeled, of_strong, of_weak = joint_outputs(model, labeled, strong, weak)
        return ViewOutputs(of_labeled, of_weak.logits.detach(), of_strong, of_weak.features.detach())
    of_weak = _output_without_gradients(model, weak, evaluating=weak_pass == "running")
    if skip_below is None:
        of_labeled, of_strong = joint_outputs(model, labeled, strong)
        return ViewOutputs(of_labeled, of_weak.logits, of_strong, of_weak.features)
    confident = pseudo_label(of_weak.logits, skip_below).confident.nonzero().squeeze(1)
    of_labeled, of_confident = joint_outputs(model, labeled, strong[confident])
    filled = (value.new_zeros(len(strong), value.shape[1]).index_copy(0, confident, value) for value in of_confident)
    return ViewOutputs(of_labeled, of_weak.logits, Output(*filled), of_weak.features)


def joint_outputs(model: nn.Module, *views: Tensor) -> list[Output]:
    """Compute the outputs for several views in one pass, with common BatchNorm statistics.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    *views : Tensor
        uint8 images (n, c, h, w); n may differ.

    Returns
    -------
    list of Output
        For each view, logits (n, classes) and features (n, width).
    """
    output, sizes = model(torch.cat(views)), [len(view) for view in views]
    parts = zip(output.logits.split(sizes), output.features.split(sizes), strict=True)
    return [Output(logits, features) for logits, features in parts]


@torch.no_grad()
def _output_without_gradients(model: nn.Module, images: Tensor, *, evaluating: bool) -> Output:
    was_training = model.training
    model.train(was_training and not evaluating)
    output: Output = model(images)
    model.train(was_training)
    return output


def joint_logits(model: nn.Module, *views: Tensor) -> tuple[Tensor, ...]:
    """Compute the logits of several views in one pass, with common BatchNorm statistics.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    *views : Tensor
        uint8 images (n, c, h, w); n may differ.

    Returns
    -------
    tuple of Tensor
        For each view, logits (n, classes).
    """
    logits: Tensor = model(torch.cat(views)).logits
    parts: tuple[Tensor, ...] = logits.split([len(view) for view in views])
    return parts


def perturbed_logits(model: nn.Module, images: Tensor, perturbation: Tensor) -> Tensor:
    """Compute the logits of perturbed images.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    images : Tensor
        uint8 images (n, c, h, w).
    perturbation : Tensor
        What to add to the normalized images (n, c, h, w), whose standard deviation is 1; to the pixel values if the
        model is not a `Classifier`.

    Returns
    -------
    Tensor
        Logits (n, classes).
    """
    unit = 255 * model.std if isinstance(model, Classifier) and not model.takes_maps else 1.0
    logits: Tensor = model(images.float() + perturbation * unit).logits
    return logits


@torch.no_grad()
def mean_probabilities(model: nn.Module, views: Sequence[Tensor]) -> Tensor:
    """Average the predictions for several views of the same images, without gradients.

    BatchNorm normalizes by the batch; its running statistics are not updated.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    views : sequence of Tensor
        uint8 images (n, c, h, w).

    Returns
    -------
    Tensor
        The mean of the softmax over the views (n, classes).
    """
    with running_statistics_kept(model):
        logits = model(torch.cat(list(views))).logits
    probabilities: Tensor = logits.softmax(1).unflatten(0, (len(views), -1)).mean(0)
    return probabilities


def interleaved_logits(model: nn.Module, images: Tensor, parts: int) -> Tensor:
    """Compute the logits of images in several batches, each with every `parts`-th row.

    If the labeled rows come first and the unlabeled ones after them, every batch has its share of both. Each batch is
    normalized by its own statistics; only the first one updates BatchNorm's running statistics.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    images : Tensor
        Images (n, c, h, w).
    parts : int
        The number of batches.

    Returns
    -------
    Tensor
        Logits (n, classes), in the order of the images.
    """
    logits = [model(images[::parts]).logits]
    with running_statistics_kept(model):
        logits += [model(images[part::parts]).logits for part in range(1, parts)]
    rows = torch.arange(len(images), device=images.device)
    order = torch.cat([rows[part::parts] for part in range(parts)])
    return torch.cat(logits)[order.argsort()]


@contextmanager
def running_statistics_kept(model: nn.Module) -> Iterator[None]:
    """Context manager: BatchNorm normalizes by the batch, but its running statistics are not updated.

    Parameters
    ----------
    model : torch.nn.Module
        The model, in training mode.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    tracking = [norm.track_running_stats for norm in norms]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm, tracked in zip(norms, tracking, strict=True):
            norm.track_running_stats = tracked
