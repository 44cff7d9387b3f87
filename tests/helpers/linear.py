"""A linear network on four pixels, for methods that mix images: its outputs can be computed by hand for any image."""

from typing import Any

import naive
import torch
from torch import Tensor, nn

from rankingmatch.methods import Batch, Context, Losses, Method, Task
from rankingmatch.methods.mixing import draw_mixup
from rankingmatch.networks import Output

CLASSES = 3
LABELS = [0, 1, 1, 2]


class Linear(nn.Module):
    """logits = W · pixels / 255 of a 2×2 picture; the features are 2 · logits + 1."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        weight = torch.randn(CLASSES, 4, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
        self.weight = nn.Parameter(weight * scale)

    def forward(self, images: Tensor) -> Output:
        logits = images.flatten(1).double() / 255 @ self.weight.T
        return Output(logits, logits * 2 + 1)


def pictures(count: int, seed: int) -> Tensor:
    """Noise with 2×2 pixels, in float64, so that mixing loses nothing."""
    return torch.randint(256, (count, 1, 2, 2), generator=torch.Generator().manual_seed(seed)).double()


def fixed_batch(method: Method, unlabeled: int = 6) -> Batch:
    """Four labeled pictures, and different ones for each view of the unlabeled."""
    views = tuple(pictures(unlabeled, seed=10 + view) for view in range(len(method.unlabeled_views)))
    return Batch((pictures(4, seed=1),), torch.tensor(LABELS), views, torch.arange(unlabeled))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(77)


def losses_of(method: Method, model: nn.Module, step: int = 10, steps: int = 10) -> Losses:
    method.prepare(Task(classes=CLASSES, features=CLASSES, unlabeled=6))
    losses: Losses = method.double()(model, fixed_batch(method), Context(step, steps, model, generator()))
    return losses


# --- the same as plain lists --------------------------------------------------------------------------------


def naive_logits(model: Linear, picture: list[float]) -> list[float]:
    return [sum(w * v / 255 for w, v in zip(row, picture, strict=True)) for row in model.weight.tolist()]


def rows_of(images: Tensor) -> naive.Rows:
    rows: naive.Rows = images.flatten(1).tolist()
    return rows


def mixed_rows(
    h: Any, model: Linear, batch: Batch, guess: naive.Rows, source: torch.Generator | None = None
) -> tuple[naive.Rows, naive.Rows]:
    """The logits and the targets of all rows, each mixed with its partner."""
    pool = [row for view in (*batch.labeled, *batch.unlabeled) for row in rows_of(view)]
    targets = [naive.one_hot(label, CLASSES) for label in LABELS] + guess * len(batch.unlabeled)
    shares, partners = (drawn.tolist() for drawn in draw_mixup(len(pool), h.alpha, source or generator()))
    logits = [naive_logits(model, row) for row in naive.mixed(pool, shares, partners)]
    return logits, naive.mixed(targets, shares, partners)
