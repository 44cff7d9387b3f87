"""The blocks of the docs that are made from the runs of a recipe, docs/results/RECIPE.jsonl."""

import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from rankingmatch.bench.kept import KeptRun, kept_outcome
from rankingmatch.bench.outcome import Outcome, details
from rankingmatch.bench.recipe import Column, cells, read_recipe
from rankingmatch.bench.scale import SCALES
from rankingmatch.bench.tables import markdown
from rankingmatch.report.intervals import mean_and_interval

RESULTS = Path(__file__).with_name("results")
PAPERS_STEP = 0.302  # seconds, of wrn-28-2 on 32×32 images, on the paper's GPU (Table 10)


@cache
def kept(recipe: str) -> tuple[Outcome, list[KeptRun]]:
    """What is kept of a recipe."""
    return kept_outcome(read_recipe(recipe), RESULTS / f"{recipe}.jsonl")


def full(recipe: str) -> str:
    """All rows and columns."""
    return "\n".join(markdown(table) for table in kept(recipe)[0].tables)


def folds(recipe: str) -> str:
    """Every fold, with validation errors and seconds."""
    return details(kept(recipe)[0])


def short(recipe: str, *labels: str) -> str:
    """A table with one decimal, of the columns with these numbers of labels, and the seconds of a run."""
    outcome = kept(recipe)[0]
    columns = _columns(outcome, labels)
    means = {column.title: _means(outcome, column.title) for column in columns}
    lines = ["| test error % | " + " | ".join(f"{column.labels} labels" for column in columns) + " | seconds |"]
    lines.append("|---|" + "---|" * (len(columns) + 1))
    for row in outcome.recipe.rows:
        texts = [_short_figure(outcome, row.name, title, min(means[title])) for title in means]
        if seconds := _seconds(outcome, row.name, list(means)):
            lines.append(f"| {row.name} | {' | '.join(texts)} | {max(1, round(seconds))} |")
    return "\n".join([*lines, ""])


def compared(recipe: str, reference: str) -> str:
    """A recipe with one column: errors, differences to a reference row fold by fold, and the minutes of a run."""
    outcome = kept(recipe)[0]
    (title,) = [column.title for column in outcome.recipe.columns]
    best, others = min(_means(outcome, title)), _by_fold(outcome, reference, title)
    lines = [f"| | test error % | minus {reference}, points | minutes |", "|---|---|---|---|"]
    for row in outcome.recipe.rows:
        if seconds := _seconds(outcome, row.name, [title]):
            same = row.name == reference
            difference = "" if same else _difference(_by_fold(outcome, row.name, title), others, decimals=1)
            figure = _short_figure(outcome, row.name, title, best)
            lines.append(f"| {row.name} | {figure} | {difference} | {seconds / 60:.1f} |")
    return "\n".join([*lines, ""])


def _columns(outcome: Outcome, labels: tuple[str, ...]) -> list[Column]:
    """The columns with these numbers of labels; all if there are none."""
    return [column for column in outcome.recipe.columns if not labels or str(column.labels) in labels]


def _seconds(outcome: Outcome, row: str, columns: list[str]) -> float | None:
    """The median seconds of the runs of a row; None if there are none."""
    found = [outcome.results[index].seconds for column in columns for index in outcome.indices(row, column)]
    return statistics.median(found) if found else None


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


def differences(recipe: str, reference: str, *labels: str) -> str:
    """Each row minus a reference row, fold by fold, with the 95 % interval of the mean; in these columns, or in all."""
    outcome = kept(recipe)[0]
    head = [column.title for column in _columns(outcome, labels)]
    lines = [f"| minus {reference}, points | " + " | ".join(head) + " |", "|---|" + "---|" * len(head)]
    for row in outcome.recipe.rows:
        if row.name != reference:
            texts = [_difference(_by_fold(outcome, row.name, c), _by_fold(outcome, reference, c)) for c in head]
            lines.append(f"| {row.name} | {' | '.join(texts)} |")
    return "\n".join([*lines, ""])


def _by_fold(outcome: Outcome, row: str, column: str) -> dict[int, float]:
    found = ((outcome.grid[index].fold, outcome.results[index].test_error) for index in outcome.indices(row, column))
    return {fold: error for fold, error in found if error is not None}


def _difference(mine: dict[int, float], others: dict[int, float], decimals: int = 2) -> str:
    common = sorted(mine.keys() & others.keys())
    if not common:
        return "–"
    mean, half = mean_and_interval(np.array([mine[fold] - others[fold] for fold in common]))
    return f"{mean:+.{decimals}f}" + ("" if half is None else f" ± {half:.{decimals}f}")


def runs(recipe: str) -> str:
    """How many runs there are, of which code and when, and what they cost."""
    outcome, found = kept(recipe)
    commits = ", ".join(sorted({run.commit for run in found}))
    days = sorted({run.date for run in found})
    hours = sum(run.result.seconds for run in found) / 3600
    folds = sorted({cell.fold for cell in outcome.grid})
    seeds = f"seed {folds[0]}" if len(folds) == 1 else f"seeds {folds[0]} to {folds[-1]}"
    return (
        f"{len(found)} runs, {seeds}, each on one thread, {hours:.1f} hours in all; "
        f"commit {commits}, {' to '.join(dict.fromkeys((days[0], days[-1])))}. "
        f"Again: `rankingmatch bench {recipe} --keep DIR`.\n"
    )


def costs(*recipes: str) -> str:
    """The number of runs of recipes at each scale, and the hours that the paper's GPU would take, by its Table 10."""
    lines = ["| recipe | " + " | ".join(f"runs, `{scale}`" for scale in SCALES) + " | on the paper's GPU |"]
    lines.append("|---|" + "---|" * (len(SCALES) + 1))
    for name in recipes:
        runs = [str(len(cells(read_recipe(name), folds=None, scale=scale, given={}))) for scale in SCALES]
        lines.append(f"| `{name}` | {' | '.join(runs)} | {_hours(name)} |")
    return "\n".join([*lines, ""])


def _hours(name: str) -> str:
    plans = [cell.plan for cell in cells(read_recipe(name), folds=None, scale="paper", given={})]
    if any(plan.config.network.network != "wrn-28-2" or plan.source.side != 32 for plan in plans):
        return "unknown: other networks or images"
    return f"{sum(plan.config.training.last_step for plan in plans) * PAPERS_STEP / 3600:,.0f} h"


RECIPE_BLOCKS: dict[str, Callable[..., str]] = {
    "full": full,
    "folds": folds,
    "short": short,
    "compared": compared,
    "differences": differences,
    "runs": runs,
}
