"""Hyperparameters that several methods share, each declared once."""

from typing import Any

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option
from rankingmatch.core.schedule import statistics_momentum

__all__ = [
    "alpha",
    "decay_at_length",
    "dimensions",
    "guesses",
    "ramp",
    "rebalance",
    "rebalance_strength",
    "sharpening",
    "similarity_temperature",
    "skip_threshold",
    "skip_unsure",
    "smoothing",
    "statistics_decay",
    "threshold",
    "tsa",
    "unlabeled_weight",
    "weak_pass",
]


def threshold(default: float = 0.95) -> Any:
    """τ of pseudo-labels."""
    return option(default, "τ: use a pseudo-label if its probability is at least this.", interval="(0, 1]")


def unlabeled_weight(default: float = 1.0) -> Any:
    """λ_u."""
    return option(default, "λ_u: weight of the unlabeled loss.", interval="[0, inf)")


def ramp(default: float) -> Any:
    """The fraction of training over which a weight increases."""
    return option(
        default,
        "Fraction of training over which the weight of the unlabeled loss increases linearly from 0 to its full value.",
        interval="[0, 1]",
    )


def guesses(default: int = 2) -> Any:
    """K views that share a guessed label."""
    return option(
        default,
        "K: number of views of an unlabeled image whose predictions are averaged into its guessed label.",
        interval="[1, 64]",
    )


def sharpening(default: float = 0.5) -> Any:
    """T of guessed labels."""
    return option(default, "T: temperature that sharpens targets; 1 leaves them unchanged.", interval="(0, inf)")


def alpha(default: float = 0.75) -> Any:
    """α of MixUp."""
    return option(default, "α: the mixing weights of MixUp are drawn from Beta(α, α).", interval="(0, inf)")


def smoothing(default: float = 0.9) -> Any:
    """α of targets that are smoothed over similar images."""
    return option(
        default,
        "α: weight of an image's own prediction in its target; 1 - α is that of similar images in memory.",
        interval="[0, 1]",
    )


def similarity_temperature(default: float) -> Any:
    """t of similarities between embeddings."""
    return option(default, "t: temperature of the similarities between embeddings.", interval="(0, inf)")


def dimensions(default: int) -> Any:
    """The size of embeddings."""
    return option(default, "Dimensions of the embeddings.", interval="[1, 65536]")


def tsa(default: str) -> Any:
    """The schedule of training signal annealing."""
    return option(
        default,
        "Training signal annealing: ignore labeled images whose predicted probability of the true class exceeds a "
        "threshold that rises on this schedule.",
    )


def weak_pass(default: str = "joint") -> Any:
    """How the weak views are passed through the network."""
    return option(
        default,
        "How weak views go through the network: in one pass with the other views, as in FixMatch (joint), or "
        "in a pass of their own without gradients, normalized by BatchNorm's running statistics (running) or "
        "their own (batch).",
    )


def skip_unsure() -> Any:
    """Whether to skip strong views without a confident pseudo-label."""
    return option(
        False,
        "Do not pass strong views through the network if the pseudo-label is below τ: faster while few are confident, "
        "but BatchNorm then sees only the confident ones. Needs {weak_pass} running or batch.",
    )


def rebalance() -> Any:
    """The remedy for classes of different sizes."""
    return option(
        "none",
        "Remedy for unbalanced classes: alignment aligns the pseudo-labels with the labels, logit-adjustment "
        "shifts the logits of the labeled loss; the others are named after their papers.",
    )


def rebalance_strength() -> Any:
    """The strength of the remedy for classes of different sizes."""
    return option(
        None,
        "Strength of {rebalance}: τ of logit-adjustment (1 by default), λ of debiaspl (0.5), T of daso (1.5), "
        "α of crest (1/3).",
        interval="(0, inf)",
    )


def skip_threshold(skip_unsure: bool, weak_pass: str, threshold: float, rebalance: str = "none") -> float | None:
    """The confidence below which strong views are skipped; ConfigError if it is not known before their pass."""
    if skip_unsure and rebalance != "none":
        raise ConfigError(
            f"{setting('skip_unsure')} needs the confidence before {setting('rebalance')} {rebalance} changes it; give "
            "one of them"
        )
    if skip_unsure and weak_pass == "joint":
        raise ConfigError(
            f"{setting('skip_unsure')} needs the weak views' predictions before the strong views' pass; set "
            f"{setting('weak_pass')} to running"
        )
    return threshold if skip_unsure else None


def statistics_decay() -> Any:
    """The decay of a method's moving averages; `decay_at_length` gives its value if it is None."""
    return option(
        None,
        "Decay of the moving averages of the model's predictions; by default 0.999 for a full run, less for a shorter "
        "one.",
        interval="[0, 1)",
    )


def decay_at_length(statistics_decay: float | None, steps: int) -> float:
    """The decay that is given, or the one for a run of this length: 1 - the momentum of BatchNorm's statistics."""
    return 1 - statistics_momentum(steps) if statistics_decay is None else statistics_decay
