"""The docs list every method, with its reference and what it is good for."""

from pathlib import Path

from rankingmatch.methods import METHODS
from rankingmatch.methods.rankingmatch import RankingMatch
from rankingmatch.methods.supervised import Supervised

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "methods.md"


def test_the_docs_have_a_row_for_every_method() -> None:
    text = PAGE.read_text()
    rows = [f"| `{name}` | {info.reference or '–'} | {info.good_for} |" for name, info in METHODS.items()]
    assert "\n".join(rows) in text
    assert all(info.good_for for info in METHODS.values())


def test_the_docs_have_a_section_for_every_method() -> None:
    titles = [line[3:] for line in PAGE.read_text().splitlines() if line.startswith("## ")]
    named = {part for title in titles for part in title.split(", ")}  # rankingmatch-bm, -ct, …
    for name in METHODS:
        variant = name.partition("-")[2]
        assert name in named or f"-{variant}" in named, name


def test_the_readme_counts_the_methods() -> None:
    others = {info.method for info in METHODS.values()} - {RankingMatch, Supervised}
    assert len(others) == 23
    assert "RankingMatch (Tran et al., 2021) and twenty-three other methods" in (ROOT / "README.md").read_text()
