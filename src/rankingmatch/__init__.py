"""Train an image classifier from a few labeled and many unlabeled images."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankingmatch.estimator import RankingMatchClassifier

__all__ = ["RankingMatchClassifier", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The estimator is imported when it is asked for: nothing else here needs torch."""
    if name == "RankingMatchClassifier":
        from rankingmatch.estimator import RankingMatchClassifier

        return RankingMatchClassifier
    raise AttributeError(f"module 'rankingmatch' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), "RankingMatchClassifier"])
