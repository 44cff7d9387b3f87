"""Hyper-parameters that several methods share, declared once."""

from typing import Any

from rankingmatch.core.errors import ConfigError
from rankingmatch.core.options import option


def threshold(default: float = 0.95) -> Any:
    """τ."""
    return option(default, "τ: a pseudo-label counts if its probability is at least this.", interval="(0, 1]")


def unlabeled_weight(default: float = 1.0) -> Any:
    """λ_u."""
    return option(default, "λ_u: weight of the unlabeled loss.", interval="[0, inf)")


def ramp(default: float) -> Any:
    """The share of training over which a weight rises."""
    return option(
        default,
        "Share of training over which the weight of the unlabeled loss rises linearly from 0 to its full value.",
        interval="[0, 1]",
    )


def guesses(default: int = 2) -> Any:
    """K."""
    return option(default, "K: views of an unlabeled image that share one guessed label.", interval="[1, 64]")


def sharpening(default: float = 0.5) -> Any:
    """T of guessed labels."""
    return option(default, "T: temperature that sharpens targets; 1 leaves them alone.", interval="(0, inf)")


def alpha(default: float = 0.75) -> Any:
    """α of MixUp."""
    return option(default, "α: MixUp's shares are drawn from Beta(α, α).", interval="(0, inf)")


def tsa(default: str) -> Any:
    """Training signal annealing."""
    return option(
        default, "Training signal annealing: leave out labeled images that are surer than a threshold which grows so."
    )


def weak_pass(default: str = "joint") -> Any:
    """How the weak views go through the network."""
    return option(
        default,
        "How weak views go through the network: in one joint pass with the others, as FixMatch's lineage does; or on "
        "their own without a graph, normalised by BatchNorm's running statistics or by their own batch.",
    )


def skip_unsure() -> Any:
    """Whether strong views that nothing is learned from go through the network."""
    return option(
        False,
        "Leave strong views out of the network where the pseudo-label is below τ: faster while few are confident, but "
        "BatchNorm then sees the confident ones only. With --weak-pass running or batch.",
    )


def threshold_of_skipping(skip_unsure: bool, weak_pass: str, threshold: float) -> float | None:
    """The confidence below which strong views are left out; ConfigError if they are in the weak views' pass."""
    if skip_unsure and weak_pass == "joint":
        raise ConfigError("--skip-unsure needs the weak views' pass before the strong ones': add --weak-pass running")
    return threshold if skip_unsure else None


def statistics_decay(default: float = 0.999) -> Any:
    """The memory of a method's running statistics."""
    return option(default, "Decay of the moving averages of what the model predicts.", interval="[0, 1)")
