"""Remedies for classes of different sizes, by name. Any method that takes its outputs from `view_outputs` can use one.

To add one: a file with a subclass of `Remedy`, its name in `Rebalance`, and one line in `REMEDIES`.
"""

from typing import Literal

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.methods.protocol import Task
from rankingmatch.methods.rebalancing.auxiliary_classifier import AuxiliaryBalancedClassifier
from rankingmatch.methods.rebalancing.daso import DASO
from rankingmatch.methods.rebalancing.debiased import DebiasedPseudoLabels
from rankingmatch.methods.rebalancing.distribution_alignment import DistributionAlignment
from rankingmatch.methods.rebalancing.logit_adjustment import LogitAdjustment
from rankingmatch.methods.rebalancing.refinement import RefinedPseudoLabels
from rankingmatch.methods.rebalancing.remedy import NoRemedy, Remedy
from rankingmatch.methods.rebalancing.self_training import ClassRebalancingSelfTraining

__all__ = ["REMEDIES", "Rebalance", "Remedy", "make_remedy"]

Rebalance = Literal["none", "alignment", "logit-adjustment", "debiaspl", "abc", "darp", "daso", "crest"]

REMEDIES: dict[str, type[Remedy]] = {
    "none": NoRemedy,
    "alignment": DistributionAlignment,
    "logit-adjustment": LogitAdjustment,
    "debiaspl": DebiasedPseudoLabels,
    "abc": AuxiliaryBalancedClassifier,
    "darp": RefinedPseudoLabels,
    "daso": DASO,
    "crest": ClassRebalancingSelfTraining,
}


def make_remedy(name: Rebalance, strength: float | None, task: Task) -> Remedy:
    """Make a remedy for unbalanced classes.

    Parameters
    ----------
    name : str
        A name in `REMEDIES`; "none" changes nothing.
    strength : float or None
        Its strength; None for that of its paper.
    task : Task
        The number of classes, and how many labels each has.

    Returns
    -------
    Remedy
        The remedy, a part of the method that uses it.

    Raises
    ------
    ConfigError
        If it has no strength, or the network does not return the features that it needs.
    """
    kind = REMEDIES[name]
    if kind.needs_features and task.features == 0:
        raise ConfigError(
            f"{setting('rebalance')} is {name}, which needs features, but this network returns logits only; let it "
            "return (logits, features)"
        )
    if kind.usual_strength is None:
        if strength is not None:
            raise ConfigError(
                f"{setting('rebalance_strength')} is {strength:g}, but {setting('rebalance')} {name} has no strength; "
                "remove it"
            )
        return kind(task, 0.0)
    return kind(task, kind.usual_strength if strength is None else strength)
