"""The tables of methods and datasets."""

import json
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from rankingmatch.core.names import plain_console
from rankingmatch.data import BENCHMARKS
from rankingmatch.methods import METHODS, hyperparameters_of

# `rankingmatch train --help` shows the hyperparameters; the other columns would make the table too wide.
ONLY_IN_JSON = ("hyperparameters", "views", "pseudo-label", "ranking loss")


def method_rows() -> list[dict[str, Any]]:
    """The paper's comparison of methods (Table 6), for all methods, and when to choose them."""
    return [
        {
            "method": name,
            "reference": entry.reference,
            "views": entry.augmentation,
            "pseudo-label": entry.post_processing,
            "ranking loss": entry.ranking_loss,
            "note": entry.note,
            "good for": entry.good_for,
            "hyperparameters": {option.name: option.default for option in hyperparameters_of(name)},
        }
        for name, entry in METHODS.items()
    ]


def dataset_rows() -> list[dict[str, Any]]:
    """The datasets known by name, and their settings."""
    return [
        {"dataset": name, "description": benchmark.description, "settings": benchmark.preset()}
        for name, benchmark in BENCHMARKS.items()
    ]


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print a JSON object per row, or a table."""
    if as_json:
        print("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
        return
    first, *columns = (name for name in rows[0] if name not in ONLY_IN_JSON)
    table = Table(Column(first, no_wrap=True), *columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(row[first], *(_cell(row[name]) for name in columns))
    plain_console().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)
