"""The command that repeats a run."""

import shlex
from typing import Any

from rankingmatch.core.errors import RankingMatchError
from rankingmatch.core.options import flag
from rankingmatch.data import Source
from rankingmatch.methods import find_method
from rankingmatch.runs.config import Config, assemble, options_of_kind, resolve

__all__ = ["repeat_command"]


def repeat_command(config: Config, source: Source | None = None) -> str:
    """The `rankingmatch train` command with the names and every option that differs from its default."""
    words = ["rankingmatch", "train", config.dataset, "--method", config.method]
    for name, value in _differing(config, source).items():
        if isinstance(value, bool):
            words.append(flag(name) if value else flag(f"no_{name}"))
        else:
            words += [flag(name), str(value)]
    return shlex.join(words)


def _differing(config: Config, source: Source | None) -> dict[str, Any]:
    """The options to give, by name."""
    settings = config.settings()
    places = {name: settings[name] for name in options_of_kind("source") if settings[name] not in (None, False)}
    try:
        usual = resolve(config.dataset, config.method, places, source).config.settings()
    except RankingMatchError:  # the folder is gone or has changed, so its presets are not known
        usual = assemble(config.dataset, config.method, find_method(config.method).preset).settings()
    given: dict[str, Any] = {**places, "seed": settings["seed"]}
    # Without a number of labels, a dataset with given folds uses those.
    if (settings["labels"], usual["labels"]) != (None, None):
        given["labels"] = settings["labels"] or 0
    without = options_of_kind("execution", "run")
    given |= {
        name: value
        for name, value in settings.items()
        if name not in without and value != usual.get(name) and value is not None
    }
    if settings["split"] is not None:  # it determines which images are labeled, unlabeled and for validation
        determined = ("labels", "validation", "imbalance", "unlabeled_imbalance")
        given = {name: value for name, value in given.items() if name not in determined}
    return given
