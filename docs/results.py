"""Write the tables of the docs from the results in docs/results/*.jsonl, and draw their pictures.

A page has a marker where a table belongs, and this script replaces what is between the two lines:

    <!-- results: photos short 40 200 -->
    <!-- end of results -->

`python docs/results.py` writes all pages; with `--check` it fails if a page differs from the results.
The results themselves come from `rankingmatch bench RECIPE --keep docs/results`.
"""

import re
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from rankingmatch.bench.curves import draw_errors, draw_learning
from rankingmatch.bench.kept import KeptRun, kept_outcome
from rankingmatch.bench.outcome import Outcome, details, errors_by_labels, learning_curves
from rankingmatch.bench.recipe import read_recipe
from rankingmatch.bench.tables import markdown
from rankingmatch.report.intervals import mean_and_interval

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/results"
PAGES = ("README.md", "docs/choose.md", "docs/results.md", "docs/photographs.md")
BLOCK = re.compile(r"(<!-- results: ([^\n]*) -->\n)(.*?)(<!-- end of results -->)", re.DOTALL)


@cache
def kept(recipe: str) -> tuple[Outcome, list[KeptRun]]:
    """What is kept of a recipe."""
    return kept_outcome(read_recipe(recipe), RESULTS / f"{recipe}.jsonl")


def full(recipe: str) -> str:
    """All rows and columns."""
    return "".join(markdown(table) for table in kept(recipe)[0].tables)


def folds(recipe: str) -> str:
    """Every fold, with validation errors and seconds."""
    return details(kept(recipe)[0])


def short(recipe: str, *labels: str) -> str:
    """A table with one decimal, of the columns with these numbers of labels, and the seconds of a run."""
    outcome = kept(recipe)[0]
    columns = [column for column in outcome.recipe.columns if str(column.labels) in labels]
    means = {column.title: _means(outcome, column.title) for column in columns}
    lines = ["| test error % | " + " | ".join(f"{column.labels} labels" for column in columns) + " | seconds |"]
    lines.append("|---|" + "---|" * (len(columns) + 1))
    for row in outcome.recipe.rows:
        texts = [_short_figure(outcome, row.name, title, min(means[title])) for title in means]
        indices = [index for title in means for index in outcome.indices(row.name, title)]
        if indices:
            seconds = statistics.median(outcome.results[index].seconds for index in indices)
            lines.append(f"| {row.name} | {' | '.join(texts)} | {max(1, round(seconds))} |")
    return "\n".join([*lines, ""])


def _errors(outcome: Outcome, row: str, column: str) -> list[float]:
    results = [outcome.results[index] for index in outcome.indices(row, column)]
    return [result.test_error for result in results if result.test_error is not None]


def _means(outcome: Outcome, column: str) -> list[float]:
    return [statistics.mean(errors) for row in outcome.recipe.rows if (errors := _errors(outcome, row.name, column))]


def _short_figure(outcome: Outcome, row: str, column: str, best: float) -> str:
    errors = _errors(outcome, row, column)
    if not errors:
        return "–"
    text = f"{statistics.mean(errors):.1f}" + (f" ± {statistics.stdev(errors):.1f}" if len(errors) > 1 else "")
    return f"**{text}**" if statistics.mean(errors) == best else text


def differences(recipe: str, reference: str) -> str:
    """Each row minus a reference row, fold by fold, with the 95 % interval of the mean."""
    outcome = kept(recipe)[0]
    head = [column.title for column in outcome.recipe.columns]
    lines = [f"| minus {reference}, points | " + " | ".join(head) + " |", "|---|" + "---|" * len(head)]
    for row in outcome.recipe.rows:
        if row.name != reference:
            texts = [_difference(_by_fold(outcome, row.name, c), _by_fold(outcome, reference, c)) for c in head]
            lines.append(f"| {row.name} | {' | '.join(texts)} |")
    return "\n".join([*lines, ""])


def _by_fold(outcome: Outcome, row: str, column: str) -> dict[int, float]:
    found = ((outcome.grid[index].fold, outcome.results[index].test_error) for index in outcome.indices(row, column))
    return {fold: error for fold, error in found if error is not None}


def _difference(mine: dict[int, float], others: dict[int, float]) -> str:
    common = sorted(mine.keys() & others.keys())
    if not common:
        return "–"
    mean, half = mean_and_interval(np.array([mine[fold] - others[fold] for fold in common]))
    return f"{mean:+.2f}" + ("" if half is None else f" ± {half:.2f}")


def runs(recipe: str) -> str:
    """How many runs there are, of which code and when, and what they cost."""
    outcome, found = kept(recipe)
    commits = ", ".join(sorted({run.commit for run in found}))
    days = sorted({run.date for run in found})
    hours = sum(run.result.seconds for run in found) / 3600
    folds = sorted({cell.fold for cell in outcome.grid})
    return (
        f"{len(found)} runs, seeds {folds[0]} to {folds[-1]}, each on one thread, {hours:.1f} hours in all; "
        f"commit {commits}, {' to '.join(dict.fromkeys((days[0], days[-1])))}. "
        f"Again: `rankingmatch bench {recipe} --keep DIR`.\n"
    )


BLOCKS: dict[str, Callable[..., str]] = {
    "full": full,
    "folds": folds,
    "short": short,
    "differences": differences,
    "runs": runs,
}


def rewritten(page: Path) -> str:
    """A page with all its tables made again."""

    def block(match: "re.Match[str]") -> str:
        recipe, kind, *arguments = shlex.split(match[2])
        return f"{match[1]}{BLOCKS[kind](recipe, *arguments)}{match[4]}"

    return BLOCK.sub(block, page.read_text())


def draw() -> Iterator[str]:
    """Draw the picture of every recipe."""
    for path in sorted(RESULTS.glob("*.jsonl")):
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


def main(arguments: list[str]) -> int:
    """Write all pages and pictures, or check the pages."""
    changed = [name for name in PAGES if rewritten(ROOT / name) != (ROOT / name).read_text()]
    if arguments == ["--check"]:
        for name in changed:
            print(f"{name} differs from docs/results; run: python docs/results.py", file=sys.stderr)
        return 1 if changed else 0
    for name in changed:
        (ROOT / name).write_text(rewritten(ROOT / name))
    print("\n".join([*changed, *draw()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
