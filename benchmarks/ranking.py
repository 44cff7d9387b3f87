"""Ranking losses: forward and backward, time and peak memory.

Called with a name, it prints the peak growth of the process during that loss in bytes: `python ranking.py ours`.
"""

import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from measuring import MEBI, Row, growth_in_own_process, growth_of, in_turns, milliseconds, ratio
from peers import all_triplets_dense, all_triplets_of_metric_learning
from rankingmatch.losses import batch_all_triplet, batch_hard_triplet, batch_mean_triplet, contrastive

N, CLASSES = 448, 10
Loss = Callable[[Tensor, Tensor], Tensor]


def logits_and_labels(n: int = N, classes: int = CLASSES) -> tuple[Tensor, Tensor]:
    """Random logits of n rows, equally many of each class."""
    logits = torch.randn(n, classes, generator=torch.Generator().manual_seed(0)).requires_grad_()
    return logits, torch.arange(n) % classes


def forward_and_backward(loss: Loss, logits: Tensor, labels: Tensor) -> None:
    """Compute a loss and its gradient."""
    logits.grad = None
    loss(logits, labels).backward()


def bare_distances(logits: Tensor, labels: Tensor) -> Tensor:
    """Only the n×n distance matrix, exact for rows that are close, as the losses require."""
    return torch.cdist(logits, logits, compute_mode="donot_use_mm_for_euclid_dist").sum()


def losses() -> dict[str, Callable[[], Loss]]:
    """Implementations of Eq. (4); other libraries are imported when they are needed."""
    return {
        "ours": lambda: batch_all_triplet,
        "metric-learning": all_triplets_of_metric_learning,
        "dense": lambda: all_triplets_dense,
    }


def rows(rounds: int = 7) -> list[Row]:
    """The rows of the table."""
    logits, labels = logits_and_labels()
    times = in_turns(
        {name: partial(forward_and_backward, make(), logits, labels) for name, make in losses().items()}, rounds
    )
    grown = {name: growth_in_own_process("ranking.py", name) for name in losses()}
    table = []
    for name, peer, faster, smaller in (
        ("metric-learning", "pytorch-metric-learning", 10, 15),
        ("dense", "a dense n×n×n tensor", 20, 50),
    ):
        what = f"`batch_all_triplet`, n={N}, {CLASSES} classes, against {peer}"
        both = f"{milliseconds(times, 'ours')}, {milliseconds(times, name)}"
        table.append(Row(f"{what}: time", faster, ratio(times, name, "ours"), detail=both))
        both = f"{grown['ours'] / MEBI:.1f} MiB, {grown[name] / MEBI:.0f} MiB"
        table.append(Row(f"{what}: peak memory", smaller, grown[name] / grown["ours"], detail=both))
    return table + matrix_rows(10 * rounds + 1)


def matrix_rows(rounds: int) -> list[Row]:
    """The O(n²) losses, compared with their matrix."""
    logits, labels = logits_and_labels()
    named: dict[str, Loss] = {
        "bare": bare_distances,
        "batch_mean_triplet": batch_mean_triplet,
        "batch_hard_triplet": batch_hard_triplet,
        "contrastive": contrastive,
    }
    times = in_turns(
        {name: partial(forward_and_backward, loss, logits, labels) for name, loss in named.items()}, rounds
    )
    return [
        Row(
            f"`{name}`, n={N}, against the bare n×n distance matrix",
            1.5,
            ratio(times, name, "bare"),
            at_least=False,
            detail=f"{milliseconds(times, name)}, {milliseconds(times, 'bare')}",
        )
        for name in named
        if name != "bare"
    ]


def main() -> None:
    """Print the peak growth of the process."""
    torch.set_num_threads(1)
    loss = losses()[sys.argv[1]]()
    forward_and_backward(loss, *logits_and_labels(20))
    logits, labels = logits_and_labels()
    print(growth_of(partial(forward_and_backward, loss, logits, labels)))


if __name__ == "__main__":
    main()
