"""Hyperparameters that several methods share, each declared once."""

from typing import Any

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option

__all__ = [
    "alpha",
    "guesses",
    "ramp",
    "sharpening",
    "skip_threshold",
    "skip_unsure",
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
    return option(default, "K: views of an unlabeled image that share one guessed label.", interval="[1, 64]")


def sharpening(default: float = 0.5) -> Any:
    """T of guessed labels."""
    return option(default, "T: temperature that sharpens targets; 1 leaves them unchanged.", interval="(0, inf)")


def alpha(default: float = 0.75) -> Any:
    """α of MixUp."""
    return option(default, "α: the mixing weights of MixUp are drawn from Beta(α, α).", interval="(0, inf)")


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
        "How weak views are passed through the network: in one joint pass with the other views, as in FixMatch; or in "
        "a pass of their own without gradients, normalized by BatchNorm's running statistics or by their own batch.",
    )


def skip_unsure() -> Any:
    """Whether to skip strong views without a confident pseudo-label."""
    return option(
        False,
        "Do not pass strong views through the network if the pseudo-label is below τ: faster while few are confident, "
        "but BatchNorm then sees only the confident ones. Needs {weak_pass} running or batch.",
    )


def skip_threshold(skip_unsure: bool, weak_pass: str, threshold: float) -> float | None:
    """The confidence below which strong views are skipped; ConfigError if they are in the pass of the weak views."""
    if skip_unsure and weak_pass == "joint":
        raise ConfigError(
            f"{setting('skip_unsure')} needs the weak views' predictions before the strong views' pass; set "
            f"{setting('weak_pass')} to running"
        )
    return threshold if skip_unsure else None


def statistics_decay(default: float = 0.999) -> Any:
    """The decay of a method's moving averages."""
    return option(default, "Decay of the moving averages of the model's predictions.", interval="[0, 1)")
