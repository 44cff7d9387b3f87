"""Write the tables of the docs from what is kept in docs/results, and draw their plots.

A page has a marker where a table belongs, and this script replaces what is between the two lines:

    <!-- results: photos short 40 200 -->
    <!-- end of results -->

`python tools/results.py` writes all pages. What is kept comes from `rankingmatch bench RECIPE --keep docs/results`
(recipe_tables.py has its blocks) and from `python benchmarks/NAME.py --keep docs/results` (measured_tables.py). Without
a file, tables are left out, and the line that says where the numbers come from says that there are none yet.
"""

import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measured_tables import MEASURED_BLOCKS, command_of, measured, script_of
from rankingmatch.bench.curves import draw
from rankingmatch.bench.recipe import recipe_names
from recipe_tables import RECIPE_BLOCKS, costs, kept

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
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


def plots() -> Iterator[str]:
    """Draw the plot of every recipe that a page shows, and of how cost grows."""
    text = "".join(page.read_text() for page in PAGES)
    for path in (path for path in sorted(RESULTS.glob("*.jsonl")) if f"results/{path.stem}.svg" in text):
        with tempfile.TemporaryDirectory() as directory:
            for plot in draw(kept(path.stem), Path(directory)):
                if plot.suffix == ".svg":
                    shutil.copy(plot, RESULTS)
                    yield f"docs/results/{plot.name}"
    if (RESULTS / "growth.json").exists():
        import growth

        growth.draw(measured("growth").rows, RESULTS / "growth.svg")
        yield "docs/results/growth.svg"


def main() -> None:
    """Write all pages and plots."""
    for page in PAGES:
        old = page.read_text()
        if (new := rewritten(old)) != old:
            page.write_text(new)
            print(page.relative_to(ROOT))
    print("\n".join(plots()))


if __name__ == "__main__":
    main()
