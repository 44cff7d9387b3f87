"""Users' own methods, each wrong in its own way."""

from dataclasses import dataclass
from typing import ClassVar

from rankingmatch.core.options import option
from rankingmatch.methods import Method


class NoDataclass(Method):
    pass


@dataclass
class Unhashable(Method):
    pass


@dataclass(eq=False)
class UnknownView(Method):
    unlabeled_views: ClassVar[tuple[str, ...]] = ("weak", "stronk")


@dataclass(eq=False)
class Clash(Method):
    momentum: float = option(0.25, "A name that SGD has already.")
