"""Settings for photographs: fine-tune a pretrained network instead of training one from random weights."""

import logging
from collections.abc import Mapping
from typing import Any

from rankingmatch.data import Source
from rankingmatch.networks.efficientnet_lite import VARIANTS, missing_weights

log = logging.getLogger(__name__)

NETWORK = "efficientnet-lite2"
SECOND_NETWORK = "efficientnet-lite0"  # where the weights of the first are not installed
SMALLEST_SIDE = 64  # smaller images are not photographs, or not much is left of them

# Chosen on the validation images of photographs of clothing, 40 labels, seeds 10 and 11 (docs/photographs.md).
FINE_TUNING: dict[str, Any] = {
    "pretrained": True,
    "tune": "top",
    "optimizer": "adamw",
    "initial_head": "fitted",
    "final_head": "fitted",
    "final_weights": "judged",
    "learning_rate": 1e-2,  # of the head, whose features have unit length
    "backbone_learning_rate": 2e-4,
    "weight_decay": 1e-4,
    "batch_size": 16,
    "mu": 3,
    "steps": 60,
    "evaluate_every": 20,
    "operation_probability": 1.0,
    "bank_views": 1,  # in so short a training, most unlabeled images are drawn once
}
# Of the method, where it has them.
FINE_TUNING_HYPERPARAMETERS: dict[str, Any] = {"threshold": 0.8, "statistics_decay": 0.95}
FINE_TUNING_METHOD = "softmatch"
# Who gives one of these wants the network to be trained, whatever the evidence says.
FORCING = ("method", "tune", "steps", "epochs", "trained_share")


def fine_tuning_settings(source: Source, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings for photographs, with hyperparameters that not every method has.

    None if they are not photographs, if another network is wanted, or for a named dataset unless `pretrained` is given.
    """
    network, side = default_network()
    if "network" in given:
        network = given["network"]
        side = VARIANTS[network].side if network in VARIANTS else side
    # As in pretraining: smaller images are enlarged, because their features are better then.
    size = given.get("image_size") or (source.side if source.side < SMALLEST_SIDE else side)
    asked_for = source.is_folder or given.get("pretrained", False)
    if not (asked_for and source.shape[2] == 3 and is_fine_tuned(network, size, given)):
        return None
    chosen = fine_tuning(size, given)
    return {**source.preset(size), "network": network, "image_size": size, "crop": True, **chosen}


def default_network() -> tuple[str, int]:
    """The network for photographs, a smaller one if only its weights are installed, and the size of its images."""
    problem = missing_weights(NETWORK)
    if problem is None or missing_weights(SECOND_NETWORK) is not None:
        return NETWORK, VARIANTS[NETWORK].side
    log.warning("%s is used, because %s", SECOND_NETWORK, problem)
    return SECOND_NETWORK, VARIANTS[SECOND_NETWORK].side


def is_fine_tuned(network: str, size: int, given: Mapping[str, Any]) -> bool:
    """Whether to start from the pretrained weights of a network; a warning says so if they are not installed."""
    if network not in VARIANTS or size < SMALLEST_SIDE:
        return False
    if not given.get("pretrained", True) or given.get("weights") is not None:
        return False
    problem = missing_weights(network)
    if problem:
        log.warning("training starts from random weights, because %s", problem)
    return problem is None


def fine_tuning(size: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for photographs of this size in pixels, with hyperparameters that not every method has."""
    chosen = {
        **FINE_TUNING,
        **FINE_TUNING_HYPERPARAMETERS,
        "padding": round(0.1 * size),
        "cutout": round(0.375 * size),
    }
    remedied = given.get("balanced") or given.get("rebalance", "none") != "none"
    if remedied or given.get("initial_head") == "random":
        chosen["final_head"] = "trained"  # one that is fitted does not know of remedies for unbalanced classes
    if chosen["final_head"] == "trained" or any(given.get(name) is not None for name in FORCING):
        chosen["final_weights"] = "trained"
    return chosen
