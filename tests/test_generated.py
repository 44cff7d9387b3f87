"""No measured number of the docs is typed by hand.

A table with numbers is either between markers, made by `python tools/results.py` from what is kept in docs/results, or
has the comment `facts: SOURCE` above it. An image is made by a target of the Makefile, except a drawing.
"""

import json
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from fenced import ROOT

sys.path.append(str(ROOT / "tools"))

import measured_tables
import recipe_tables
import results
from rankingmatch.bench.results import keep_rows

PAGES = results.PAGES
CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])(?<!\w-)\d")  # not the one of a name, such as WRN-28-2 or float32
GENERATED = re.compile(r"<!-- results: .*?<!-- end of results -->", re.DOTALL)
TABLE = re.compile(r"(?:^ *<!-- facts: (?P<source>\S[^\n]*) -->\n)?(?P<rows>(?:^ *\|[^\n]*\n)+)", re.MULTILINE)
IMAGE = re.compile(r"!\[[^]]*\]\(([^)]+\.(?:png|svg))\)|<img[^>]*src=\"([^\"]+)\"")
DRAWINGS = {"docs/images/data-flow.svg"}
# Which target of the Makefile makes an image.
TARGETS = {
    "docs/images/*.png": "screenshots",
    "docs/images/demo.svg": "figure",
    "docs/results/growth.svg": "performance",
    "docs/results/*.svg": "results",
}


def sources_of_tables(text: str) -> list[str | None]:
    """The sources of the tables with numbers that are not generated; None for a table without one."""
    tables = TABLE.finditer(CODE.sub("", GENERATED.sub("", text)) + "\n")
    return [table["source"] for table in tables if NUMBER.search(table["rows"])]


HAND_TYPED = "| error | seconds |\n|---|---|\n| 3.6 % | 17 |\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_table_with_numbers_is_generated_or_names_the_source_of_its_facts(page: Path) -> None:
    for source in sources_of_tables(page.read_text()):
        assert source is not None
        for path in re.findall(r"(?:src|docs|tests)/[\w/.]+", source):
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        (f"<!-- facts: the paper -->\n{HAND_TYPED}", ["the paper"]),
        (f"<!-- facts: the paper -->\n\n{HAND_TYPED}", [None]),  # above another paragraph
        (f"<!-- results: digits full -->\n{HAND_TYPED}<!-- end of results -->\n", []),
        (f"<!-- results: digits full -->\n<!-- end of results -->\n{HAND_TYPED}", [None]),
        (f"```text\n{HAND_TYPED}```\n", []),
        ("  | a | 3.6 |\n", [None]),
        ("| network | size |\n|---|---|\n| WRN-28-2 | `--image-size 32` in float32 |\n", []),
        ("| a | -0.5 |\n", [None]),
    ],
)
def test_tables_are_told_apart(text: str, sources: list[str | None]) -> None:
    assert sources_of_tables(text) == sources


# --- generated blocks ------------------------------------------------------------------------------------------


def test_every_generated_number_is_that_of_the_kept_results() -> None:
    for page in PAGES:
        assert results.rewritten(page.read_text()) == page.read_text(), f"{page}: run python tools/results.py"
    assert sum(len(results.BLOCK.findall(page.read_text())) for page in PAGES) > 30


def test_what_is_not_measured_yet_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (results, recipe_tables, measured_tables):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    assert results.block("digits", "full") == results.block("pools", "table") == ""
    assert results.block("digits", "runs") == "Not measured yet: `rankingmatch bench digits --keep docs/results`.\n"
    assert "`python benchmarks/variants.py --keep" in results.block("variants-digits", "source")
    looks = [{"low": 10, "high": 60, "error": 33}, {"low": 9, "high": 20, "error": 22}]
    values = {"data": "Digits", "method": "softmatch", "seed": 0, "sizes": [10, 20], "errors": [30.0, 20.5]}
    rows: list[dict[str, object]] = [{**values, "looks": looks, "order": order} for order in ("ours", "random")]
    keep_rows(tmp_path / "labeling-digits.json", "rankingmatch bench labeling", rows)
    assert "| Digits | softmatch | ours | 30.0 | 20.5 |" in results.block("labeling-stl10", "orders", "labeling-digits")
    assert results.block("labeling-digits", "intervals").splitlines()[-1] == "| 1 | 1 | 0 | 0 |"


@pytest.mark.parametrize(
    ("words", "message"), [("digits tabel", "no such block"), ("digit full", "measures digit"), ("pool table", "pool")]
)
def test_a_marker_with_a_mistake_is_an_error(words: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        results.block(*words.split())


@pytest.fixture
def three_folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kept runs of two recipes on the same data: three folds of two rows, two of a third; one fold of one row."""
    errors = {"fixmatch-ra": (3.0, 5.0, 7.0), "rankingmatch-bm": (2.0, 3.0, 4.0), "bm_weight_0.3": (1.0, 1.0)}
    lines = [kept_line(row, fold, error) for row, folds in errors.items() for fold, error in enumerate(folds)]
    (tmp_path / "digits-ranking.jsonl").write_text("".join(lines))
    (tmp_path / "digits.jsonl").write_text(kept_line("rankingmatch-bm", 0, 9.0))
    monkeypatch.setattr(recipe_tables, "RESULTS", tmp_path)
    recipe_tables.kept.cache_clear()
    yield
    recipe_tables.kept.cache_clear()


# Differences -1, -2 and -3: standard deviation 1, Student's factor 4.303, -2 ± 4.303 / √3 = 2.48.


@pytest.mark.usefixtures("three_folds")
def test_a_comparison_has_errors_paired_differences_and_minutes() -> None:
    table = recipe_tables.compared("digits-ranking", "fixmatch-ra").splitlines()
    assert table[2] == "| fixmatch-ra | 5.0 ± 2.0 |  | 3 | 1.5 |"
    assert table[3] == "| rankingmatch-bm | **3.0 ± 1.0** | -2.00 ± 2.48 | 3 | 1.5 |"
    assert table[4] == "| bm, weight 0.3 | 1.0 ± 0.0 | -3.00 | 2 | 1.5 |"  # too few folds
    assert len(table) == 5  # rows without runs are left out
    options = ("sorted", "-rankingmatch-bm")
    table = recipe_tables.compared("digits-ranking", "fixmatch-ra", *options).splitlines()
    assert [line.split(" | ")[0] for line in table[2:]] == ["| bm, weight 0.3", "| fixmatch-ra"]
    text = recipe_tables.runs("digits-ranking")
    assert text.startswith("8 of the recipe's 55 runs, seeds 0 to 2, each on one thread, 0.2 hours in all; ")
    assert text.endswith(" To run all: `rankingmatch bench digits-ranking`.\n")


@pytest.mark.usefixtures("three_folds")
def test_pairs_of_rows_are_compared_within_a_recipe_and_with_the_paper() -> None:
    wanted = ("rankingmatch-bm - fixmatch-ra", "bm, weight 0.3 - rankingmatch-bm", "rankingmatch-bh - rankingmatch-bm")
    assert recipe_tables.pairs("digits", "digits-ranking", *wanted).splitlines() == [
        "| difference, points (± 95% interval) | Digits, 40 labels |",
        "|---|---|",
        "| rankingmatch-bm minus fixmatch-ra | -2.00 ± 2.48 |",
        "| bm, weight 0.3 minus rankingmatch-bm | -1.50 |",
        "| rankingmatch-bh minus rankingmatch-bm | – |",
    ]
    with pytest.raises(SystemExit, match="rankingmatch-xx"):
        recipe_tables.pairs("digits-ranking", "rankingmatch-xx - fixmatch-ra")
    (recipe_tables.RESULTS / "laptop-svhn.jsonl").write_text(
        kept_line("rankingmatch-bm", 0, 4.0, "svhn-250") + kept_line("rankingmatch-bh", 0, 5.5, "svhn-250")
    )
    others = ("rankingmatch-bm - rankingmatch-bh", "bm, without L2 - rankingmatch-bm")
    assert recipe_tables.pairs("laptop-svhn", "digits-ranking", "table5", *others).splitlines() == [
        "| difference, points (± 95% interval) "
        "| SVHN, 250 labels | SVHN, 250 labels, in the paper | Digits, 40 labels |",
        "|---|---|---|---|",
        "| rankingmatch-bm minus rankingmatch-bh | -1.50 | -1.02 | – |",  # 2.11 - 3.13
        "| bm, without L2 minus rankingmatch-bm | – | – | – |",  # neither NaN nor a column with other labels
    ]


def kept_line(method: str, fold: int, error: float, column: str = "digits-40") -> str:
    """A line of docs/results: a run of 90 seconds with this test error."""
    lines = (ROOT / "docs/results/digits-ranking.jsonl").read_text().splitlines()
    values = json.loads(next(line for line in lines if "-bm-0" in line))
    values["run"] = f"{column}-{method}-{fold}"
    values["result"] |= {"method": method, "seed": fold, "test_error": error, "seconds": 90.0}
    return json.dumps(values) + "\n"


def test_the_numbers_of_runs_and_hours_follow_from_the_recipes() -> None:
    assert results.block("table9", "costs").splitlines()[-1] == "| `table9` | 9 | 9 | 9 | 99 h |"


# --- images ----------------------------------------------------------------------------------------------------


def commands_of(target: str) -> str:
    """The commands of a target of the Makefile, and the scripts that they run."""
    rule = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule, f"the Makefile has no target {target}"
    scripts = re.findall(r"tools/\w+\.py", rule[1])
    return "\n".join([rule[1], *((ROOT / script).read_text() for script in scripts)])


def test_every_image_of_the_docs_is_made_by_a_target_of_the_makefile() -> None:
    found = [(page.parent / (a or b)).resolve() for page in PAGES for a, b in IMAGE.findall(page.read_text())]
    images = {path.relative_to(ROOT).as_posix() for path in found}
    assert {"docs/images/demo.svg", "docs/images/label-page.png", "docs/results/photos.svg"} <= images
    for image in sorted(images - DRAWINGS):
        assert (ROOT / image).exists(), image
        targets = [target for pattern, target in TARGETS.items() if fnmatch(image, pattern)]
        assert targets, f"{image} is made by nothing"
        name = Path(image).stem
        kept = (ROOT / f"docs/results/{name}.jsonl").exists()  # drawn by tools/results.py
        assert kept or name in commands_of(targets[0]), f"make {targets[0]} does not make {image}"
