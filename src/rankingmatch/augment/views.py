"""The settings of the weak, the medium and the strong view."""

from dataclasses import dataclass
from typing import Literal

from rankingmatch.augment.ctaugment import CTAugment
from rankingmatch.augment.policies import Policy, RandAugment, Weak
from rankingmatch.core.options import option

__all__ = ["ViewSettings", "view_policies"]


@dataclass(frozen=True)
class ViewSettings:
    """How the weak and the strong view of an image are made.

    Attributes
    ----------
    flip : bool
        Whether to flip half of the images horizontally.
    padding : int
        The largest shift, in pixels.
    strong : {"randaugment", "ctaugment"}
        The policy of the strong view.
    operations : int
        The number of operations drawn for each strong view.
    operation_probability : float
        RandAugment: the probability that a drawn operation is applied.
    cutout : int
        The side of the gray square of the strong view, in pixels.
    """

    flip: bool = option(True, "Weak and strong views: flip half of the images horizontally.")
    padding: int = option(
        4,
        "Weak and strong views: shift by up to this many pixels, with reflect padding.",
        interval="[0, 1024]",
    )
    strong: Literal["randaugment", "ctaugment"] = option(
        "randaugment",
        "Strong view: RandAugment draws magnitudes at random; CTAugment learns at which ones the model still "
        "recognizes labeled images.",
    )
    bank_views: int = option(
        6,
        "With {tune} top or head: number of weak and of strong views of each image that are computed in advance.",
        interval="[1, 64]",
    )
    operations: int = option(2, "Strong view: number of operations drawn for each image.", interval="[0, 1024]")
    operation_probability: float = option(
        0.5, "RandAugment: probability that a drawn operation is applied.", interval="[0, 1]"
    )
    cutout: int = option(16, "Strong view: side of the gray square (cutout), in pixels.", interval="[0, 1024]")


def view_policies(settings: ViewSettings) -> dict[str, Policy]:
    """Make the policies of the views.

    Parameters
    ----------
    settings : ViewSettings
        The settings of the views.

    Returns
    -------
    dict of str to Policy
        The policies named "weak", "medium" and "strong". A policy that learns is in its initial state. The medium view
        is RandAugment with one operation.
    """
    weak = Weak(settings.flip, settings.padding)
    medium = RandAugment(weak, 1, settings.operation_probability, settings.cutout)
    strong: Policy = RandAugment(weak, settings.operations, settings.operation_probability, settings.cutout)
    if settings.strong == "ctaugment":
        strong = CTAugment(weak, settings.operations, settings.cutout)
    return {"weak": weak, "medium": medium, "strong": strong}
