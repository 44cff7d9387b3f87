"""How the views of a batch are passed through the network; and FixMatch's losses of three views."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods.protocol import Batch, Losses, PseudoLabels
from rankingmatch.networks import Classifier, Output


class ViewOutputs(NamedTuple):
    """The network's outputs for the three views of FixMatch and related methods."""

    labeled: Output
    weak: Output  # without gradients
    strong: Output
    # The logits of the cross-entropies: those above, unless a remedy for unbalanced classes shifts them.
    labeled_logits: Tensor
    strong_logits: Tensor
    extra_losses: Mapping[str, Tensor] = MappingProxyType({})  # of such a remedy, to be added to the total


def three_views(model: nn.Module, batch: Batch) -> ViewOutputs:
    """Pass a labeled, a weak and a strong view through the network."""
    (known,), (weak_images, strong_images) = batch.labeled, batch.unlabeled
    if isinstance(model, Classifier) and model.takes_maps:
        # BatchNorm's statistics are fixed: a pass of its own gives the same outputs, and needs no graph.
        with torch.no_grad():
            weak = model(weak_images)
        labeled, strong = joint_outputs(model, known, strong_images)
    else:
        labeled, strong, weak = joint_outputs(model, known, strong_images, weak_images)
        weak = Output(weak.logits.detach(), weak.features.detach())
    return ViewOutputs(labeled, weak, strong, labeled.logits, strong.logits)


def joint_outputs(model: nn.Module, *views: Tensor) -> list[Output]:
    """Compute the outputs for views (n, c, h, w) in one pass, with common BatchNorm statistics; n may differ."""
    output, sizes = model(torch.cat(views)), [len(view) for view in views]
    parts = zip(output.logits.split(sizes), output.features.split(sizes), strict=True)
    return [Output(logits, features) for logits, features in parts]


def joint_logits(model: nn.Module, *views: Tensor) -> tuple[Tensor, ...]:
    """Compute the logits for several views (n, c, h, w) in one pass, as `joint_outputs`."""
    return tuple(output.logits for output in joint_outputs(model, *views))


def perturbed_logits(model: nn.Module, images: Tensor, perturbation: Tensor) -> Tensor:
    """Compute the logits (n, classes) of perturbed uint8 images (n, c, h, w).

    The perturbation is added to normalized images, whose standard deviation is 1; to the pixel values if the model is
    not a `Classifier`.
    """
    unit = 255 * model.std if isinstance(model, Classifier) and not model.takes_maps else 1.0
    logits: Tensor = model(images.float() + perturbation * unit).logits
    return logits


@torch.no_grad()
def mean_probabilities(model: nn.Module, views: Sequence[Tensor]) -> Tensor:
    """Average the predictions (n, classes) for several views (n, c, h, w) of the same images, without gradients.

    BatchNorm normalizes by the batch; its running statistics are not updated.
    """
    with running_statistics_kept(model):
        logits = model(torch.cat(list(views))).logits
    probabilities: Tensor = logits.softmax(1).unflatten(0, (len(views), -1)).mean(0)
    return probabilities


def interleaved_logits(model: nn.Module, images: Tensor, parts: int) -> Tensor:
    """Compute the logits (n, classes) of images (n, c, h, w) in several batches, each with every `parts`-th row.

    If the labeled rows come first and the unlabeled ones after them, every batch has its share of both. Each batch is
    normalized by its own statistics; only the first one updates BatchNorm's running statistics.
    """
    logits = [model(images[::parts]).logits]
    with running_statistics_kept(model):
        logits += [model(images[part::parts]).logits for part in range(1, parts)]
    rows = torch.arange(len(images), device=images.device)
    order = torch.cat([rows[part::parts] for part in range(parts)])
    return torch.cat(logits)[order.argsort()]


@contextmanager
def running_statistics_kept(model: nn.Module) -> Iterator[None]:
    """Within, BatchNorm of a model in training mode normalizes by the batch, but keeps its running statistics."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    tracking = [norm.track_running_stats for norm in norms]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm, tracked in zip(norms, tracking, strict=True):
            norm.track_running_stats = tracked


def fixmatch_losses(
    outputs: ViewOutputs,
    labels: Tensor,
    pseudo: PseudoLabels,
    unlabeled_weight: float,
    row_weights: Tensor | None = None,
) -> Losses:
    """L = (1/B) Σ H(label, labeled view) + λ_u (1/μB) Σ w H(pseudo-label, strong view).

    The weights w (μB,) are 1 for confident rows and 0 for others unless `row_weights` are given.
    """
    labeled_ce = F.cross_entropy(outputs.labeled_logits, labels)
    weights = pseudo.confident if row_weights is None else row_weights
    unlabeled_ce = masked_cross_entropy(outputs.strong_logits, pseudo.labels, weights)
    total = labeled_ce + unlabeled_weight * unlabeled_ce
    return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)
