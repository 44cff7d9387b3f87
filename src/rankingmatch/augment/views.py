"""What "weak" and "strong" mean for a dataset."""

from dataclasses import dataclass
from typing import Literal

from rankingmatch.augment.ctaugment import CTAugment
from rankingmatch.augment.policies import Policy, RandAugment, Weak
from rankingmatch.core.options import option


@dataclass(frozen=True)
class ViewSettings:
    """What the views of a dataset are made of."""

    flip: bool = option(True, "Weak and strong views: flip half of the images sideways.")
    padding: int = option(
        4,
        "Weak and strong views: shift by up to this many pixels, mirrored at the border.",
        interval="[0, 1024]",
    )
    strong: Literal["randaugment", "ctaugment"] = option(
        "randaugment",
        "Strong view: operations at random magnitudes, or at magnitudes that are learned during training, those under "
        "which the model still knows labeled images.",
    )
    operations: int = option(2, "Strong view: how many operations are picked.", interval="[0, 1024]")
    operation_probability: float = option(
        0.5, "RandAugment: probability that a picked operation is applied.", interval="[0, 1]"
    )
    cutout: int = option(16, "Strong view: side of the grey square, in pixels.", interval="[0, 1024]")


def view_policies(settings: ViewSettings) -> dict[str, Policy]:
    """The policy behind each view's name; one that learns starts anew."""
    weak = Weak(settings.flip, settings.padding)
    if settings.strong == "ctaugment":
        return {"weak": weak, "strong": CTAugment(weak, settings.operations, settings.cutout)}
    strong = RandAugment(weak, settings.operations, settings.operation_probability, settings.cutout)
    return {"weak": weak, "strong": strong}
