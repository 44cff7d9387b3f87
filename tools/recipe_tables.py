"""The blocks of the docs that are made from the runs of a recipe, docs/results/RECIPE.jsonl."""

import math
import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from rankingmatch.bench.recipe import ERRORS, SCALES, Column, Recipe, cells, read_recipe
from rankingmatch.bench.results import Outcome, details, kept_outcome
from rankingmatch.bench.tables import markdown
from rankingmatch.report.run_data import mean_and_interval
from rankingmatch.runs.config import Plan

RESULTS = Path(__file__).parents[1] / "docs/results"
PAPERS_STEP = 0.302  # seconds, of wrn-28-2 on 32×32 images, on the paper's GPU (Table 10)
ABSENT = "–"  # in a table, for what was not run
DEVIATION, INTERVAL = "± standard deviation", "± 95% interval"
FEWEST = 3  # folds, for an interval or to be called the best: Student's factor is 12.7 for two


@cache
def kept(recipe: str) -> Outcome:
    """What is kept of a recipe."""
    return kept_outcome(read_recipe(recipe), RESULTS / f"{recipe}.jsonl")


def full(recipe: str) -> str:
    """All rows and columns."""
    return "\n".join(markdown(table) for table in kept(recipe).tables)


def folds(recipe: str) -> str:
    """Every fold, with validation errors and seconds."""
    return details(kept(recipe))


def short(recipe: str, *labels: str) -> str:
    """A table with one decimal, of the columns with these numbers of labels, and the seconds of a run."""
    outcome = kept(recipe)
    columns = _columns(outcome, labels)
    best = {column.title: _best(outcome, column.title) for column in columns}
    counts = {column.title: _folds(outcome, column.title) for column in columns}
    equal = len(set(counts.values())) == 1
    heads = [f"{column.labels} labels" + ("" if equal else f", {counts[column.title]} folds") for column in columns]
    lines = [f"| test error % ({DEVIATION}) | {' | '.join(heads)} | seconds |", "|---|" + "---|" * (len(columns) + 1)]
    for row in outcome.recipe.rows:
        texts = [_short_figure(outcome, row.name, title, best[title]) for title in best]
        if seconds := _seconds(outcome, row.name, list(best)):
            lines.append(f"| {row.name} | {' | '.join(texts)} | {max(1, round(seconds))} |")
    return "\n".join([*lines, ""])


def compared(recipe: str, reference: str, *options: str) -> str:
    """A recipe with one column: errors, differences to a reference row fold by fold, and the minutes of a run.

    The option "sorted" puts the lowest error first, and "-ROW" leaves a row out.
    """
    outcome = kept(recipe)
    (title,) = [column.title for column in outcome.recipe.columns]
    rows = {
        row.name: _by_fold(outcome, row.name, title) for row in outcome.recipe.rows if f"-{row.name}" not in options
    }
    if "sorted" in options:
        rows = dict(sorted(rows.items(), key=lambda item: statistics.fmean(item[1].values() or [math.inf])))
    best, others = _best(outcome, title), _by_fold(outcome, reference, title)
    lines = [f"| | test error % ({DEVIATION}) | difference from {reference}, points ({INTERVAL}) | folds | minutes |"]
    lines.append("|---|---|---|---|---|")
    for row, mine in rows.items():
        if seconds := _seconds(outcome, row, [title]):
            difference = "" if row == reference else _difference(mine, others)
            figure = _short_figure(outcome, row, title, best)
            lines.append(f"| {row} | {figure} | {difference} | {len(mine)} | {seconds / 60:.1f} |")
    return "\n".join([*lines, ""])


def _columns(outcome: Outcome, labels: tuple[str, ...]) -> list[Column]:
    """The columns with these numbers of labels; all if there are none."""
    return [column for column in outcome.recipe.columns if not labels or str(column.labels) in labels]


def _seconds(outcome: Outcome, row: str, columns: list[str]) -> float | None:
    """The median seconds of the runs of a row; None if there are none."""
    found = [run.result.seconds for column in columns for run in outcome.of(row, column)]
    return statistics.median(found) if found else None


def _folds(outcome: Outcome, column: str) -> int:
    """The number of folds of a column: of the row that has most."""
    return max(len(_by_fold(outcome, row.name, column)) for row in outcome.recipe.rows)


def _best(outcome: Outcome, column: str) -> str | None:
    """The row with the lowest mean among those that have all folds of a column; None if these are too few."""
    errors = {row.name: list(_by_fold(outcome, row.name, column).values()) for row in outcome.recipe.rows}
    most = max(map(len, errors.values()))
    whole = [row for row in errors if len(errors[row]) == most]
    return min(whole, key=lambda row: statistics.mean(errors[row])) if most >= FEWEST else None


def _short_figure(outcome: Outcome, row: str, column: str, best: str | None) -> str:
    errors = list(_by_fold(outcome, row, column).values())
    if not errors:
        return ABSENT
    text = f"{statistics.mean(errors):.1f}" + (f" ± {statistics.stdev(errors):.1f}" if len(errors) > 1 else "")
    return f"**{text}**" if row == best else text


def differences(recipe: str, reference: str, *labels: str) -> str:
    """Each row minus a reference row, fold by fold, with the 95 % interval of the mean; in these columns, or in all."""
    outcome = kept(recipe)
    head = [column.title for column in _columns(outcome, labels)]
    first = f"difference from {reference}, points ({INTERVAL})"
    lines = [f"| {first} | " + " | ".join(head) + " |", "|---|" + "---|" * len(head)]
    for row in outcome.recipe.rows:
        if row.name != reference:
            texts = [_difference(_by_fold(outcome, row.name, c), _by_fold(outcome, reference, c)) for c in head]
            lines.append(f"| {row.name} | {' | '.join(texts)} |")
    return "\n".join([*lines, ""])


def pairs(recipe: str, *arguments: str) -> str:
    """Differences of two rows, "ROW - ROW", fold by fold: one line for each pair, one column for each dataset.

    Arguments without " - " are further recipes; of recipes with the same dataset and labels, the first with both rows
    counts. Of a recipe that has not been run, the figures of the paper are compared, beside ours for the same data.
    """
    wanted = [(mine, other) for mine, sign, other in (text.partition(" - ") for text in arguments) if sign]
    recipes = [read_recipe(name) for name in (recipe, *(text for text in arguments if " - " not in text))]
    if unknown := {row for pair in wanted for row in pair} - {row.name for one in recipes for row in one.rows}:
        names = ", ".join(one.name for one in recipes)
        raise SystemExit(f"results: pairs: there is no row {', '.join(sorted(unknown))} in {names}")
    columns = _columns_of_pairs(recipes, wanted)
    lines = [f"| difference, points ({INTERVAL}) | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for index, (mine, other) in enumerate(wanted):
        lines.append(f"| {mine} minus {other} | {' | '.join(texts[index] for texts in columns.values())} |")
    return "\n".join([*lines, ""])


def _columns_of_pairs(recipes: list[Recipe], wanted: list[tuple[str, str]]) -> dict[str, list[str]]:
    """By the head of a column: a difference for each pair. The paper's are beside ours, or left out."""
    found: dict[tuple[str, bool], list[str]] = {}
    for recipe in recipes:
        was_run = (RESULTS / f"{recipe.name}.jsonl").exists()
        for index, title in enumerate(column.title for column in recipe.columns):
            texts = [_ours(recipe, title, *pair) if was_run else _papers(recipe, index, *pair) for pair in wanted]
            before = found.get((title, was_run), [ABSENT] * len(wanted))
            found[title, was_run] = [new if old == ABSENT else old for old, new in zip(before, texts, strict=True)]
    titles = [title for title, was_run in found if was_run]
    heads = [(title, was_run) for title in titles for was_run in (True, False) if (title, was_run) in found]
    return {title if was_run else f"{title}, in the paper": found[title, was_run] for title, was_run in heads}


def _ours(recipe: Recipe, column: str, mine: str, other: str) -> str:
    outcome = kept(recipe.name)
    return _difference(_by_fold(outcome, mine, column), _by_fold(outcome, other, column))


def _papers(recipe: Recipe, column: int, mine: str, other: str) -> str:
    """The difference of two means of the paper, which has no errors of folds."""
    figures = recipe.paper[ERRORS]
    texts = [figures[row][column] for row in (mine, other) if row in figures]
    if len(texts) < 2 or any(text[:1] not in set("0123456789") for text in texts):  # "", or "NaN-70"
        return ABSENT
    first, second = (float(text.split()[0]) for text in texts)
    return f"{first - second:+.2f}"


def _by_fold(outcome: Outcome, row: str, column: str) -> dict[int, float]:
    results = (run.result for run in outcome.of(row, column))
    return {result.seed: result.test_error for result in results if result.test_error is not None}


def _difference(mine: dict[int, float], others: dict[int, float]) -> str:
    common = sorted(mine.keys() & others.keys())
    if not common:
        return ABSENT
    mean, half = mean_and_interval(np.array([mine[fold] - others[fold] for fold in common]))
    return f"{mean:+.2f}" + (f" ± {half:.2f}" if half is not None and len(common) >= FEWEST else "")


def runs(recipe: str) -> str:
    """How many runs there are, of which code and when, and what they cost."""
    outcome = kept(recipe)
    found = outcome.runs.values()
    commits = sorted({run.commit for run in found})
    days = sorted({run.date for run in found})
    hours = sum(run.result.seconds for run in found) / 3600
    folds = sorted({cell.fold for cell in outcome.grid})
    seeds = f"seed {folds[0]}" if len(folds) == 1 else f"seeds {folds[0]} to {folds[-1]}"
    planned = len(outcome.recipe.rows) * len(outcome.recipe.columns) * outcome.recipe.folds
    count = f"{len(found)} runs" if len(found) == planned else f"{len(found)} of the recipe's {planned} runs"
    repeat = "To repeat them" if len(found) == planned else "To run all"
    return (
        f"{count}, {seeds}, each on one thread, {hours:.1f} hours in all; "
        f"{'commit' if len(commits) == 1 else 'commits'} {', '.join(commits)}, "
        f"{' to '.join(dict.fromkeys((days[0], days[-1])))}. "
        f"{repeat}: `rankingmatch bench {recipe}`.\n"
    )


def costs(*recipes: str) -> str:
    """The number of runs of recipes at each scale, and the hours that the paper's GPU would take, by its Table 10."""
    lines = ["| recipe | " + " | ".join(f"runs, `{scale}`" for scale in SCALES) + " | on the paper's GPU |"]
    lines.append("|---|" + "---|" * (len(SCALES) + 1))
    for name in recipes:
        found = {scale: cells(read_recipe(name), folds=None, scale=scale, given={}) for scale in SCALES}
        runs = [str(len(planned)) for planned in found.values()]
        lines.append(f"| `{name}` | {' | '.join(runs)} | {_hours([cell.plan for cell in found['paper']])} |")
    return "\n".join([*lines, ""])


def _hours(plans: list[Plan]) -> str:
    if any(plan.config.network.network != "wrn-28-2" or plan.source.side != 32 for plan in plans):
        return "unknown: other networks or images"
    return f"{sum(plan.config.training.last_step for plan in plans) * PAPERS_STEP / 3600:,.0f} h"


RECIPE_BLOCKS: dict[str, Callable[..., str]] = {
    "full": full,
    "folds": folds,
    "short": short,
    "compared": compared,
    "differences": differences,
    "pairs": pairs,
    "runs": runs,
}
