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
