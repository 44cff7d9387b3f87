"""A "network" whose outputs are looked up, so that any method's losses can be computed by hand.

Images are single pixels that hold their number: labeled views come first, then unlabeled ones, each with its own rows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import naive_methods
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


def lookup_batch(method: Method, step: int = 0) -> Batch:
    """4 labeled and 6 unlabeled images in all of the method's views; in some steps an image occurs twice."""
    first = LABELED * len(method.labeled_views)
    labeled = tuple(numbered(LABELED * view, LABELED) for view in range(len(method.labeled_views)))
    unlabeled = tuple(numbered(first + UNLABELED * view, UNLABELED) for view in range(len(method.unlabeled_views)))
    rows = [(5 * step + row * (1 + step % 2)) % UNLABELED for row in range(UNLABELED)]
    labeled_rows = [[0, 1, 1, 3], [0, 1, 2, 3], [0, 2, 1, 3]][step % 3]  # an image keeps its label
    return Batch(labeled, torch.tensor(LABELS), unlabeled, torch.tensor(rows), torch.tensor(labeled_rows))


def lookup_step(method: Method, model: Lookup, teacher: Lookup, number: int) -> naive_methods.Step:
    """The same batch for the oracles."""
    batch = lookup_batch(method, number)

    def outputs(network: Lookup, views: tuple[Tensor, ...]) -> tuple[Any, Any]:
        found = [network(view) for view in views]
        return [one.logits.tolist() for one in found], [one.features.tolist() for one in found]

    labeled, unlabeled = outputs(model, batch.labeled), outputs(model, batch.unlabeled)
    return naive_methods.Step(
        *(number, LABELS, labeled[0], unlabeled[0], labeled[1], unlabeled[1]),
        *(outputs(teacher, batch.unlabeled)[0], batch.rows.tolist(), batch.labeled_rows.tolist()),
    )


@contextmanager
def precision(dtype: torch.dtype = torch.float64) -> Iterator[None]:
    """Within, new tensors are float64, so that oracles can be compared closely."""
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def prepared(name: str, **hyperparameters: Any) -> Method:
    """A method in double precision for 6 unlabeled and 4 labeled images."""
    method = make_method(name, hyperparameters)
    with torch.random.fork_rng(devices=[]), precision():
        torch.manual_seed(0)
        method.prepare(Task(CLASSES, WIDTH, UNLABELED, labeled=LABELED))
    return method


def losses_of(
    method: Method, model: nn.Module, step: int = 2, batch: Batch | None = None, teacher: nn.Module | None = None
) -> Losses:
    """The losses of a method at a step of 10."""
    context = Context(step, naive_methods.STEPS, teacher or model, torch.Generator().manual_seed(step))
    with precision(next(model.parameters()).dtype):
        return method(model, batch or lookup_batch(method, step), context)
