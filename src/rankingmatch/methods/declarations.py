"""Hyper-parameters that several methods share, declared once."""

from typing import Any

from rankingmatch.options import option


def threshold(default: float = 0.95) -> Any:
    """τ."""
    return option(default, "τ: a pseudo-label counts if its probability is at least this.", interval="(0, 1]")


def unlabeled_weight(default: float = 1.0) -> Any:
    """λ_u."""
    return option(default, "λ_u: weight of the unlabeled loss.", interval="[0, inf)")


def weak_pass(default: str = "joint") -> Any:
    """How the weak views go through the network."""
    return option(
        default,
        "How weak views go through the network: in one joint pass with the others, as FixMatch's lineage does; or on "
        "their own without a graph, normalised by BatchNorm's running statistics or by their own batch.",
    )


def ramp_up(default: float = 0.4) -> Any:
    """The share of training over which a weight grows."""
    return option(
        default,
        "Share of training over which the weight of the unlabeled loss grows linearly from 0 to its full value.",
        interval="[0, 1]",
    )


def sharpening_temperature(default: float) -> Any:
    """T of sharpening."""
    return option(default, "T: temperature that sharpens the targets; 1 leaves them.", interval="(0, inf)")


def statistics_decay(default: float = 0.999) -> Any:
    """The memory of a method's running statistics."""
    return option(default, "Decay of the moving averages of what the model predicts.", interval="[0, 1)")
