"""How views go through the network."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankingmatch.networks import Output


class ViewOutputs(NamedTuple):
    """The network's outputs for the three views of FixMatch and its kin."""

    labeled: Output
    weak_logits: Tensor  # never part of a graph: pseudo-labels are targets
    strong: Output


def view_outputs(model: nn.Module, labeled: Tensor, weak: Tensor, strong: Tensor, *, joint: bool) -> ViewOutputs:
    """Outputs for labeled, weak and strong views.

    Jointly, all views share one pass and so BatchNorm's statistics of the batch. Otherwise the weak views go
    first, without a graph, which saves their backward pass and a third of the memory.
    """
    if joint:
        sizes = [len(labeled), len(weak), len(strong)]
        output = model(torch.cat([labeled, weak, strong]))
        logits, features = output.logits.split(sizes), output.features.split(sizes)
        return ViewOutputs(Output(logits[0], features[0]), logits[1].detach(), Output(logits[2], features[2]))
    with torch.no_grad():
        weak_logits = model(weak).logits
    output = model(torch.cat([labeled, strong]))
    count = len(labeled)
    return ViewOutputs(
        Output(output.logits[:count], output.features[:count]),
        weak_logits,
        Output(output.logits[count:], output.features[count:]),
    )
