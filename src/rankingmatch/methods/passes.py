"""How views go through the network."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from rankingmatch.networks import Output

WeakPass = Literal["joint", "running", "batch"]


class ViewOutputs(NamedTuple):
    """The network's outputs for the three views of FixMatch and its kin."""

    labeled: Output
    weak_logits: Tensor  # never part of a graph: pseudo-labels are targets
    strong: Output


def view_outputs(model: nn.Module, labeled: Tensor, weak: Tensor, strong: Tensor, weak_pass: WeakPass) -> ViewOutputs:
    """Outputs for labeled, weak and strong views.

    In a joint pass all views share BatchNorm's statistics of the batch and a graph that the weak ones do not need.
    On their own the weak views have no graph, which saves their backward pass and their part of the memory; they are
    normalised by their own batch, or, in evaluation mode, by the running statistics.
    """
    views = [labeled, strong] if weak_pass != "joint" else [labeled, strong, weak]
    if weak_pass != "joint":
        weak_logits = _without_graph(model, weak, evaluating=weak_pass == "running")
    output = model(torch.cat(views))
    sizes = [len(view) for view in views]
    logits, features = output.logits.split(sizes), output.features.split(sizes)
    if weak_pass == "joint":
        weak_logits = logits[2].detach()
    return ViewOutputs(Output(logits[0], features[0]), weak_logits, Output(logits[1], features[1]))


@torch.no_grad()
def _without_graph(model: nn.Module, images: Tensor, *, evaluating: bool) -> Tensor:
    was_training = model.training
    model.train(was_training and not evaluating)
    logits: Tensor = model(images).logits
    model.train(was_training)
    return logits
