"""Scales: a recipe as in the paper, or reduced to what a laptop can compute."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rankingmatch.data import Source
from rankingmatch.methods import find_method

PAPER_EPOCHS = 128


@dataclass(frozen=True)
class Scale:
    """What is reduced, all at once: images first, because they cost the most."""

    side: int | None = None  # largest side of an image
    steps: int | None = None  # of a run with 128 epochs in the paper
    mu: int | None = None  # unlabeled images per labeled one, at most
    folds: int | None = None  # at most
    settings: Mapping[str, Any] = field(default_factory=dict)  # of every run
    lengths: Mapping[str, int] = field(default_factory=dict)  # steps of datasets that need fewer or more


# Long enough for FixMatch to be well below the labels alone, and not much longer. Chosen on validation images
# (docs/reproduce.md): the length of each dataset, the learning rate, and an EMA that does not lag behind the weights.
_LAPTOP = {
    "network": "wrn-10-2",
    "batch_size": 32,
    "learning_rate": 0.1,
    "ema_decay": 0.99,
    "precision": "auto",
    "threads": 1,
}
_TINY = {"network": "small", "batch_size": 16, "learning_rate": 0.1, "threads": 1}

SCALES: dict[str, Scale] = {
    "paper": Scale(),
    "laptop": Scale(
        side=16, steps=5000, mu=4, folds=3, settings=_LAPTOP, lengths={"fashion-mnist": 2000, "cifar10": 8000}
    ),
    "tiny": Scale(side=8, steps=160, mu=3, folds=1, settings=_TINY),
}
EVALUATIONS = 5  # of a run that is not at the paper's scale


def scaled(scale: Scale, source: Source, method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run at this scale.

    The length stays in proportion (256 epochs stay twice 128), and so does the part of it that is run.
    """
    if scale.steps is None or scale.mu is None:
        return dict(settings)
    own = find_method(method).preset
    result = {**settings, **scale.settings}
    if "network" in own:  # a part of the method
        result["network"] = own["network"]
    native = settings.get("image_size") or max(source.shape[:2])
    if scale.side is not None and native > scale.side:
        result["image_size"] = scale.side
    result["mu"] = min(scale.mu, settings.get("mu", own.get("mu", scale.mu)))
    epochs = result.pop("epochs", None) or PAPER_EPOCHS
    steps = settings.get("steps", source.preset(settings.get("image_size")).get("steps"))
    length = scale.lengths.get(source.name, scale.steps)
    result["steps"] = round(length * epochs / PAPER_EPOCHS) if steps is None else min(steps, length)
    result["evaluate_every"] = max(1, result["steps"] // EVALUATIONS)
    if "stop_after" in settings:
        share = settings["stop_after"] / (1024 * epochs)
        result["stop_after"] = min(result["steps"], max(20, round(share * result["steps"])))
    return result
