"""Write the tables of the docs from what is kept in docs/results, and draw their pictures.

A page has a marker where a table belongs, and this script replaces what is between the two lines:

    <!-- results: photos short 40 200 -->
    <!-- end of results -->

`python docs/results.py` writes all pages; with `--check` it fails if a page differs from the results. What is kept
comes from `rankingmatch bench RECIPE --keep docs/results` (recipe_tables.py has its blocks) and from the benchmarks,
`python benchmarks/NAME.py --keep docs/results` (measured_tables.py). Without a file, tables are left out, and the line
that says where the numbers come from says that there are none yet.
"""

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measured_tables import MEASURED_BLOCKS, command_of, measured, script_of
from recipe_tables import RECIPE_BLOCKS, costs, kept

from rankingmatch.bench.curves import draw_errors, draw_learning
from rankingmatch.bench.outcome import errors_by_labels, learning_curves
from rankingmatch.bench.recipe import recipe_names

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(^<!-- results: ([^\n]*) -->\n)(.*?)(^<!-- end of results -->)", re.DOTALL | re.MULTILINE)


def block(name: str, kind: str, *arguments: str) -> str:
    """What belongs between two markers."""
    if kind == "costs":
        return costs(name, *arguments)
    if kind in RECIPE_BLOCKS:
        make, command, known = RECIPE_BLOCKS[kind], f"rankingmatch bench {name}", name in recipe_names()
        paths = [RESULTS / f"{name}.jsonl"]
    elif kind in MEASURED_BLOCKS:
        make, command, known = MEASURED_BLOCKS[kind], command_of(name), script_of(name).exists()
        paths = [RESULTS / f"{one}.json" for one in (name, *arguments)]
    else:
        kinds = ", ".join(["costs", *RECIPE_BLOCKS, *MEASURED_BLOCKS])
        raise SystemExit(f"results: {name} {kind}: there is no such block; use one of {kinds}")
    if not known:
        raise SystemExit(f"results: {name} {kind}: nothing measures {name}")
    if any(path.exists() for path in paths):
        return make(name, *arguments)
    return f"Not measured yet: `{command} --keep docs/results`.\n" if kind in ("runs", "source") else ""


def rewritten(text: str) -> str:
    """A page with all its blocks made again."""
    return BLOCK.sub(lambda match: f"{match[1]}{_unbroken(block(*shlex.split(match[2])))}{match[4]}", text)


def _unbroken(table: str) -> str:
    """No line is broken between a mean and its deviation."""
    return table.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def draw() -> Iterator[str]:
    """Draw the picture of every recipe that a page shows, and of how cost grows."""
    text = "".join(page.read_text() for page in PAGES)
    for path in (path for path in sorted(RESULTS.glob("*.jsonl")) if f"results/{path.stem}.svg" in text):
        outcome, _ = kept(path.stem)
        errors = errors_by_labels(outcome)
        with tempfile.TemporaryDirectory() as directory:
            if errors:
                draw_errors(path.stem, errors, Path(directory))
            else:
                draw_learning(path.stem, learning_curves(outcome), Path(directory))
            for picture in Path(directory).glob("*.svg"):
                shutil.copy(picture, RESULTS)
                yield f"docs/results/{picture.name}"
    if (RESULTS / "growth.json").exists():
        import growth

        growth.draw(measured("growth").rows, RESULTS / "growth.svg")
        yield "docs/results/growth.svg"


def main(arguments: list[str]) -> int:
    """Write all pages and pictures, or check the pages."""
    pages = {page: (page.read_text(), rewritten(page.read_text())) for page in PAGES}
    changed = {page: new for page, (old, new) in pages.items() if new != old}
    if arguments == ["--check"]:
        for page in changed:
            print(f"{page.relative_to(ROOT)} differs from docs/results; run: python docs/results.py", file=sys.stderr)
        return 1 if changed else 0
    for page, new in changed.items():
        page.write_text(new)
    print("\n".join([*(str(page.relative_to(ROOT)) for page in changed), *draw()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
