"""Hyper-parameters that several methods share, declared once."""

from typing import Any

from rankingmatch.options import option


def threshold(default: float = 0.95) -> Any:
    """τ."""
    return option(default, "τ: a pseudo-label counts if its probability is at least this.", interval="(0, 1]")


def unlabeled_weight(default: float = 1.0) -> Any:
    """λ_u."""
    return option(default, "λ_u: weight of the unlabeled loss.", interval="[0, inf)")


def joint_pass(default: bool = False) -> Any:
    """One network pass or two."""
    return option(
        default,
        "Send labeled, weak and strong views through the network in one pass with a graph, as FixMatch's "
        "lineage does; otherwise the weak views have a pass of their own, without a graph.",
    )
