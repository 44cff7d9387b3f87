"""Classifiers on frozen features, and the names of what can train them."""

__all__ = ["DEFAULT_METHOD", "LOGISTIC_REGRESSION", "require_head_method"]

LOGISTIC_REGRESSION = "logistic-regression"
DEFAULT_METHOD = "softmatch"  # docs/label.md compares


def require_head_method(name: str) -> None:
    """Raise ConfigError unless this method can train a head; the default one and logistic regression can."""
    if name not in (DEFAULT_METHOD, LOGISTIC_REGRESSION):  # torch takes seconds to import
        from rankingmatch.heads.linear import require_method

        require_method(name)
