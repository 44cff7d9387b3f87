"""The table of methods: the docs list each, defaults are those of the papers, and one's own methods are checked."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rankingmatch.core.errors import ConfigError
from rankingmatch.methods import METHODS, Task, hyperparameters_of, make_method
from rankingmatch.methods.rankingmatch import RankingMatch
from rankingmatch.methods.supervised import Supervised

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/methods"


def test_the_docs_have_a_row_for_every_method() -> None:
    text = (PAGES / "index.md").read_text()
    rows = [f"| `{name}` | {info.reference or '–'} | {info.good_for} |" for name, info in METHODS.items()]
    assert "\n".join(rows) in text
    assert all(info.good_for for info in METHODS.values())


def test_the_docs_have_one_section_for_every_method() -> None:
    text = "".join(page.read_text() for page in PAGES.glob("*.md"))
    named = Counter(part for title in re.findall(r"^## (.*)$", text, re.MULTILINE) for part in title.split(", "))
    for name in METHODS:
        variant = f"-{name.partition('-')[2]}"  # rankingmatch-bm, -ct, …
        assert named[name] + named[variant] == 1, name


def test_the_readme_counts_the_methods() -> None:
    others = {info.method for info in METHODS.values()} - {RankingMatch, Supervised}
    assert len(others) == 23
    assert "RankingMatch (Tran et al., 2021) and twenty-three other methods" in (ROOT / "README.md").read_text()


DEFAULTS: dict[str, Any] = {
    **{"threshold": 0.95, "unlabeled_weight": 1.0, "ramp": 0.4, "sharpening": 0.5, "statistics_decay": None},
    **{"rebalance": "none", "rebalance_strength": None},
    **{"guesses": 2, "alpha": 0.75, "strong_views": 1, "tsa": "none", "dropped": 0.1, "labeled_view": "weak"},
    **{"strong_weight": 0.5, "rotation_weight": 1.0, "distance_weight": 1.0, "instance_weight": 1.0},
    **{"epsilon": 6.0, "xi": 1e-3, "power_iterations": 1, "adversarial_weight": 0.3, "entropy_weight": 0.06},
    **{"reconstruction_weight": 0.3, "intermediate_weight": 0.3, "whole_weight": 0.0, "hole": 0.5},
    **{"fairness_weight": 0.01, "lowest_threshold": 0.0, "highest_threshold": 1.0, "sigmas": 2.0},
    **{"uniform_alignment": True, "relative_threshold": 0.9, "loss_decay": 1.27, "least_loss": 0.05},
    **{"warm_up": 1 / 512, "contrastive_weight": 1.0, "smoothing": 0.9, "similarity_temperature": 0.2},
    **{"graph_threshold": 0.8, "memory": 2560, "dimensions": 64, "embedding_decay": 0.7, "class_margin": 8.0},
    **{"label_smoothing": 0.5, "ranking_weight": 1.0, "ranking_ramp": 0.0, "margin": 0.5, "soft_margin": True},
    **{"squared": False, "true_mean": False, "true_triplets": False, "temperature": 0.2, "similarity": "cosine"},
    **{"l2_normalize": True, "rank_on": "logits", "rank_all": False},
}
MIXED = {"unlabeled_weight": 75.0, "ramp": 0.125}
OTHER_DEFAULTS: dict[str, dict[str, Any]] = {
    "pi-model": {"unlabeled_weight": 10.0},
    "mean-teacher": {"unlabeled_weight": 50.0},
    "cc-gan": {"adversarial_weight": 0.1},
    "uda": {"threshold": 0.8, "sharpening": 0.4},
    "mixmatch": MIXED,
    "realmix": {**MIXED, "tsa": "linear"},
    "remixmatch": {"unlabeled_weight": 1.5, "rotation_weight": 0.5, "ramp": 0.125, "guesses": 8},
    "simmatch": {"similarity_temperature": 0.1, "dimensions": 128},
    "defixmatch": {"unlabeled_weight": 0.5},
    "finessl": {"threshold": 0.7, "unlabeled_weight": 3.0},
}


@pytest.mark.parametrize("name", METHODS)
def test_the_papers_numbers_are_the_defaults(name: str) -> None:
    for one in hyperparameters_of(name):
        assert one.default == {**DEFAULTS, **OTHER_DEFAULTS.get(name, {})}[one.name], one.name


def test_bounds_that_exclude_everything_are_refused() -> None:
    with pytest.raises(ConfigError, match="lowest_threshold"):
        make_method("freematch", {"lowest_threshold": 0.9, "highest_threshold": 0.8}).prepare(Task(3, 3, 6))
