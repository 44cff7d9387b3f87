"""Scales: the same recipe as the paper has it, or shrunk to what a laptop can do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rankingmatch.methods import find_method
from rankingmatch.runs.config import source_of

PAPER_EPOCHS = 128


@dataclass(frozen=True)
class Scale:
    """What is shrunk, all together: images first, for they cost the most."""

    side: int | None = None  # largest side of an image
    steps: int | None = None  # of a run that has 128 epochs in the paper
    mu: int | None = None  # unlabeled images per labeled one, at most
    folds: int | None = None  # at most
    settings: Mapping[str, Any] = field(default_factory=dict)  # of every run


_QUICK = {"network": "small", "batch_size": 16, "learning_rate": 0.1, "threads": 1}

SCALES: dict[str, Scale] = {
    "paper": Scale(),
    "small": Scale(side=16, steps=2000, mu=3, folds=3, settings=_QUICK),
    "tiny": Scale(side=8, steps=160, mu=3, folds=1, settings=_QUICK),
}


def scaled(scale: Scale, dataset: str, method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run at this scale.

    The length follows what the recipe says (256 epochs stay twice 128), and so does the part of it that is run.
    """
    if scale.steps is None or scale.mu is None:
        return dict(settings)
    result = {**settings, **scale.settings}
    chosen = source_of(dataset, settings)
    native = max(chosen.shape[:2])
    if scale.side is not None and native > scale.side:
        result["image_size"] = scale.side
    result["mu"] = min(scale.mu, settings.get("mu", find_method(method).preset.get("mu", scale.mu)))
    epochs = result.pop("epochs", None) or PAPER_EPOCHS
    steps = settings.get("steps", chosen.preset.get("steps"))
    result["steps"] = round(scale.steps * epochs / PAPER_EPOCHS) if steps is None else min(steps, scale.steps)
    result["evaluate_every"] = max(1, result["steps"] // 4)
    if "stop_after" in settings:
        share = settings["stop_after"] / (1024 * epochs)
        result["stop_after"] = min(result["steps"], max(20, round(share * result["steps"])))
    return result
