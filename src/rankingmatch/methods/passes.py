"""How views go through the network."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from rankingmatch.methods.targets import pseudo_label
from rankingmatch.networks import Classifier, Output

WeakPass = Literal["joint", "running", "batch"]


class ViewOutputs(NamedTuple):
    """The network's outputs for the three views of FixMatch and its kin."""

    labeled: Output
    weak_logits: Tensor  # never part of a graph: pseudo-labels are targets
    strong: Output


def view_outputs(
    model: nn.Module,
    labeled: Tensor,
    weak: Tensor,
    strong: Tensor,
    weak_pass: WeakPass,
    skip_below: float | None = None,
) -> ViewOutputs:
    """Outputs for labeled, weak and strong views.

    In a joint pass all views share BatchNorm's statistics of the batch and a graph that the weak ones do not need.
    On their own the weak views have no graph, which saves their backward pass and their part of the memory; they are
    normalised by their own batch, or, in evaluation mode, by the running statistics.
    With `skip_below` a strong view whose weak view is less sure than that is left out, and its outputs are 0.
    """
    if weak_pass != "joint":
        weak_logits = _without_graph(model, weak, evaluating=weak_pass == "running")
    if skip_below is not None:
        sure = pseudo_label(weak_logits, skip_below).confident.nonzero().squeeze(1)
        few = model(torch.cat([labeled, strong[sure]]))
        kept = (
            value.new_zeros(len(strong), value.shape[1]).index_copy(0, sure, value[len(labeled) :]) for value in few
        )
        return ViewOutputs(Output(*(value[: len(labeled)] for value in few)), weak_logits, Output(*kept))
    views = [labeled, strong] if weak_pass != "joint" else [labeled, strong, weak]
    output = model(torch.cat(views))
    sizes = [len(view) for view in views]
    logits, features = output.logits.split(sizes), output.features.split(sizes)
    if weak_pass == "joint":
        weak_logits = logits[2].detach()
    return ViewOutputs(Output(logits[0], features[0]), weak_logits, Output(logits[1], features[1]))


def joint_logits(model: nn.Module, *views: Tensor) -> tuple[Tensor, ...]:
    """The logits of each view, from one pass of all together: they share BatchNorm's statistics of the batch."""
    logits: Tensor = model(torch.cat(views)).logits
    parts: tuple[Tensor, ...] = logits.split([len(view) for view in views])
    return parts


def perturbed_logits(model: nn.Module, images: Tensor, perturbation: Tensor) -> Tensor:
    """The logits of images to which a perturbation is added, in units of the normalised image (deviation 1).

    A model that does not normalise gets it in units of a pixel's value.
    """
    unit = 255 * model.std if isinstance(model, Classifier) else 1.0
    logits: Tensor = model(images.float() + perturbation * unit).logits
    return logits


@torch.no_grad()
def mean_probabilities(model: nn.Module, views: Sequence[Tensor]) -> Tensor:
    """(n, classes) mean of softmax over several views of the same n images.

    There is no graph, and BatchNorm normalises by the batch without keeping its statistics.
    """
    with running_statistics_kept(model):
        logits = model(torch.cat(list(views))).logits
    probabilities: Tensor = logits.softmax(1).unflatten(0, (len(views), -1)).mean(0)
    return probabilities


def interleaved_logits(model: nn.Module, images: Tensor, parts: int) -> Tensor:
    """Logits of a pool that goes through the network in several batches, each with every `parts`-th row.

    If the pool has the labeled rows first and the unlabeled ones after them, every batch has its share of both. Each is
    normalised by its own statistics; only the first one's reach BatchNorm's running statistics.
    """
    logits = [model(images[::parts]).logits]
    with running_statistics_kept(model):
        logits += [model(images[part::parts]).logits for part in range(1, parts)]
    rows = torch.arange(len(images), device=images.device)
    order = torch.cat([rows[part::parts] for part in range(parts)])
    return torch.cat(logits)[order.argsort()]


@contextmanager
def running_statistics_kept(model: nn.Module) -> Iterator[None]:
    """Inside, BatchNorm goes on normalising by the batch while training, but its running statistics stay."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    tracking = [norm.track_running_stats for norm in norms]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm, tracked in zip(norms, tracking, strict=True):
            norm.track_running_stats = tracked


@torch.no_grad()
def _without_graph(model: nn.Module, images: Tensor, *, evaluating: bool) -> Tensor:
    was_training = model.training
    model.train(was_training and not evaluating)
    logits: Tensor = model(images).logits
    model.train(was_training)
    return logits
