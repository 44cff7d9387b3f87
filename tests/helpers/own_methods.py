"""Users' own methods, each wrong in its own way."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from rankingmatch.core.options import option
from rankingmatch.methods import Batch, Context, Losses, Method
from rankingmatch.methods.passes import joint_logits
from rankingmatch.methods.targets import pseudo_label


class NoDataclass(Method):
    pass


@dataclass
class Unhashable(Method):
    pass


@dataclass(eq=False)
class UnknownView(Method):
    unlabeled_views: ClassVar[tuple[str, ...]] = ("weak", "stronk")


@dataclass(eq=False)
class Clash(Method):
    momentum: float = option(0.25, "A name that SGD has already.")


@dataclass(eq=False)
class Waits(Method):
    """FixMatch, except that it makes a device wait, or mixes devices."""

    mistake: str = option("none", "What it does wrong: item, rows, branch, cpu or print.")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        labeled, weak, strong = joint_logits(model, *batch.labeled, *batch.unlabeled)
        pseudo = pseudo_label(weak.detach(), 0.5)
        cost = F.cross_entropy(strong, pseudo.labels, reduction="none")
        total = F.cross_entropy(labeled, batch.labels)
        if self.mistake == "item":
            total = total + total.item()
        if self.mistake == "rows":
            total = total + cost[pseudo.confident].sum()
        if self.mistake == "branch" and pseudo.confident.any():
            total = total + cost.sum()
        if self.mistake == "cpu":
            total = total + (cost * torch.ones(len(cost))).sum()
        if self.mistake == "print":
            total = total + cost.tolist()[0]
        return Losses(total, {"labeled_ce": total})
