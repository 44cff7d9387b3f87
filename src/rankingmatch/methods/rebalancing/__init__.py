"""Remedies for classes of different sizes, by name: `ThreeViews` applies one around a method's `forward`.

To add one: a subclass of `Remedy`, its name in `Rebalance`, and one line in `REMEDIES`.
"""

from typing import Literal

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.methods.protocol import Task
from rankingmatch.methods.rebalancing.refinement import RefinedPseudoLabels
from rankingmatch.methods.rebalancing.remedies import (
    DASO,
    AuxiliaryBalancedClassifier,
    ClassRebalancingSelfTraining,
    DebiasedPseudoLabels,
    DistributionAlignment,
    LogitAdjustment,
    Remedy,
)

__all__ = ["REMEDIES", "Rebalance", "Remedy", "make_remedy"]

Rebalance = Literal["none", "alignment", "logit-adjustment", "debiaspl", "abc", "darp", "daso", "crest"]

REMEDIES: dict[str, type[Remedy]] = {
    "none": Remedy,
    "alignment": DistributionAlignment,
    "logit-adjustment": LogitAdjustment,
    "debiaspl": DebiasedPseudoLabels,
    "abc": AuxiliaryBalancedClassifier,
    "darp": RefinedPseudoLabels,
    "daso": DASO,
    "crest": ClassRebalancingSelfTraining,
}


def make_remedy(name: Rebalance, strength: float | None, task: Task) -> Remedy:
    """Make the remedy of this name for a task; the strength None is that of its paper.

    `ConfigError` if it has no strength, or the network does not return the features that it needs.
    """
    kind = REMEDIES[name]
    if kind.needs_features and task.features == 0:
        raise ConfigError(
            f"{setting('rebalance')} is {name}, which needs features, but this network returns logits only; let it "
            "return (logits, features)"
        )
    if kind.usual_strength is None and strength is not None:
        raise ConfigError(
            f"{setting('rebalance_strength')} is {strength:g}, but {setting('rebalance')} {name} has no strength; "
            "remove it"
        )
    return kind(task, strength or kind.usual_strength or 0.0)
