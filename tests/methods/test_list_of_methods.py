"""The docs list every method, with its reference and what it is good for."""

import re
from collections import Counter
from pathlib import Path

from rankingmatch.methods import METHODS
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
