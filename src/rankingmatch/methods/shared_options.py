"""Hyperparameters that several methods share, each declared once; a method may give another default."""

from collections.abc import Callable
from typing import Any

from rankingmatch.core.options import option


def _shared(default: Any, help: str, interval: str = "") -> Callable[..., Any]:
    return lambda default=default: option(default, help, interval=interval)


threshold = _shared(0.95, "τ: use a pseudo-label if its probability is at least this.", "(0, 1]")
unlabeled_weight = _shared(1.0, "λ_u: weight of the unlabeled loss.", "[0, inf)")
ramp = _shared(
    0.4,
    "Fraction of training over which the weight of the unlabeled loss increases linearly from 0 to its full value.",
    "[0, 1]",
)
guesses = _shared(2, "K: number of views of an unlabeled image that share one guessed label.", "[1, 64]")
sharpening = _shared(0.5, "T: temperature that sharpens targets; 1 leaves them unchanged.", "(0, inf)")
alpha = _shared(0.75, "α: the mixing weights of MixUp are drawn from Beta(α, α).", "(0, inf)")
smoothing = _shared(
    0.9, "α: weight of an image's own prediction in its target; 1 - α is that of similar images in memory.", "[0, 1]"
)
similarity_temperature = _shared(0.2, "t: temperature of the similarities between embeddings.", "(0, inf)")
dimensions = _shared(64, "Dimensions of the embeddings.", "[1, 65536]")
tsa = _shared(
    "none",
    "Training signal annealing: ignore labeled images whose predicted probability of the true class exceeds a "
    "threshold that rises on this schedule.",
)
statistics_decay = _shared(
    None,
    "Decay of the moving averages of the model's predictions; by default 0.999 for a full run, less for a shorter one.",
    "[0, 1)",
)
