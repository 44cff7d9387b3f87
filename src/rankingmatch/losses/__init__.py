"""The losses of the paper and of related methods, as pure functions of tensors.

Logits are (n, classes), labels (n,) of integers, targets (n, classes) of probabilities. A loss is a scalar with a
gradient; `kl_divergence` and `entropy` have one value for each row (n,).
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
