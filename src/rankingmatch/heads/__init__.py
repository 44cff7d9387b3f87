"""Classifiers on frozen features, and the names of what can train them."""

LOGISTIC_REGRESSION = "logistic-regression"
HEAD_METHOD = "softmatch"  # docs/label.md compares


def require_head_method(name: str) -> None:
    """Raise ConfigError unless this method can train a head; the default one and logistic regression can."""
    if name not in (HEAD_METHOD, LOGISTIC_REGRESSION):  # torch takes seconds to import
        from rankingmatch.heads.linear import require_method

        require_method(name)
