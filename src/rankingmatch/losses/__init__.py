"""The losses of the paper and of related methods, as pure functions of tensors.

A loss is a scalar with a gradient; `kl_divergence` and `entropy` have one value for each row (n,).

Notes
-----
The functions share these parameters:

- `logits`: logits (n, classes); the ranking losses also take other vectors, `rows` (n, width).
- `labels`, `targets`: integers (n,), and probabilities (n, classes).
- `mask`: booleans (n,), the rows that count; of a ranking loss, the rows C that are ranked, by default all.
- `margin`, `soft_margin`: m, and whether f is softplus; otherwise it is the hinge max(0, ·).
- `temperature`: T of the contrastive loss.
- `threshold`: the probability of the label above which a row is left out.
- `l2_normalize`: whether to L2-normalize the rows first.
- `squared`: whether d is the squared Euclidean distance; otherwise it is the Euclidean distance.
- `anchors`: positions (k,) of some rows: only the terms of the sum that have them as anchors, so that parts add up.
"""

from rankingmatch.losses.classification import (
    brier,
    entropy,
    kl_divergence,
    masked_brier,
    masked_cross_entropy,
    soft_cross_entropy,
    tsa_cross_entropy,
)
from rankingmatch.losses.ranking import (
    batch_all_triplet,
    batch_hard_triplet,
    batch_mean_triplet,
    contrastive,
    l2_normalized,
)

__all__ = [
    "batch_all_triplet",
    "batch_hard_triplet",
    "batch_mean_triplet",
    "brier",
    "contrastive",
    "entropy",
    "kl_divergence",
    "l2_normalized",
    "masked_brier",
    "masked_cross_entropy",
    "soft_cross_entropy",
    "tsa_cross_entropy",
]


def __dir__() -> list[str]:
    return __all__
