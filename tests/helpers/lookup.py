"""A "network" whose outputs are looked up, for methods with more views than the fixed batch of the contract has.

Images are single pixels that hold their number: labeled views come first, then unlabeled ones, each with its own rows.
"""

from typing import Any

import torch
from torch import Tensor, nn

from rankingmatch.methods import Batch, Context, Losses, Method, Task, make_method
from rankingmatch.networks import Output

LABELS = [0, 1, 1, 2]
LABELED, UNLABELED, CLASSES, WIDTH = 4, 6, 3, 5


class Lookup(nn.Module):
    """Image i has the logits and the features of row i."""

    def __init__(self, logits: Tensor, features: Tensor) -> None:
        super().__init__()
        self.logits, self.features = nn.Parameter(logits), nn.Parameter(features)

    def forward(self, images: Tensor) -> Output:
        number = images.flatten().long()
        return Output(self.logits[number], self.features[number])


def random_model(scale: float, seed: int = 0) -> Lookup:
    """Random outputs for up to 40 images."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(40, CLASSES, generator=generator, dtype=torch.float64) * scale
    return Lookup(logits, torch.randn(40, WIDTH, generator=generator, dtype=torch.float64))


def numbered(start: int, count: int) -> Tensor:
    return torch.arange(start, start + count, dtype=torch.uint8).view(-1, 1, 1, 1)


def lookup_batch(method: Method, rows: list[int] | None = None, labeled_rows: list[int] | None = None) -> Batch:
    """4 labeled and 6 unlabeled images in all of the method's views."""
    first = LABELED * len(method.labeled_views)
    labeled = tuple(numbered(LABELED * view, LABELED) for view in range(len(method.labeled_views)))
    unlabeled = tuple(numbered(first + UNLABELED * view, UNLABELED) for view in range(len(method.unlabeled_views)))
    rows, labeled_rows = rows or list(range(UNLABELED)), labeled_rows or list(range(LABELED))
    return Batch(labeled, torch.tensor(LABELS), unlabeled, torch.tensor(rows), torch.tensor(labeled_rows))


def prepared(name: str, **hyperparameters: Any) -> Method:
    """A method in double precision for 6 unlabeled and 4 labeled images."""
    method = make_method(name, hyperparameters)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        method.prepare(Task(CLASSES, WIDTH, UNLABELED, labeled=LABELED))
    return method.double()


def context_of(step: int, steps: int = 10) -> Context:
    return Context(step, steps, nn.Identity(), torch.Generator().manual_seed(step))


def losses_of(method: Method, model: nn.Module, step: int = 2, batch: Batch | None = None) -> Losses:
    losses: Losses = method(model, batch or lookup_batch(method), context_of(step))
    return losses


def embedded(method: Method, features: Tensor) -> list[list[float]]:
    """The embeddings of features, computed layer by layer."""
    weights = [value.detach() for value in method.projection.state_dict().values()]  # type: ignore[union-attr]
    hidden = features.detach() @ weights[0].T + weights[1]
    rows = torch.where(hidden > 0, hidden, 0.1 * hidden) @ weights[2].T + weights[3]
    unit: list[list[float]] = (rows / rows.square().sum(1, keepdim=True).sqrt()).tolist()
    return unit
