"""Tables as in the paper: mean ± standard deviation, the paper's figure next to ours, the best in bold."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from rankingmatch.core.names import csv_text, text_cell


@dataclass(frozen=True)
class Figure:
    """The measurements for a row and a column: one value for each fold, epoch or batch."""

    values: tuple[float, ...] = ()
    diverged: tuple[int, ...] = ()  # the steps at which runs diverged

    @property
    def mean(self) -> float | None:
        """The mean; None without values or if a run diverged."""
        return statistics.mean(self.values) if self.values and not self.diverged else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of at least two values."""
        return statistics.stdev(self.values) if self.mean is not None and len(self.values) > 1 else None

    def __str__(self) -> str:
        """Mean ± standard deviation, or NaN-step where a run diverged, as the paper writes it."""
        if self.mean is None:
            return ", ".join(f"NaN-{step}" for step in self.diverged) or "–"
        return f"{self.mean:.2f}" + ("" if self.deviation is None else f" ± {self.deviation:.2f}")


@dataclass(frozen=True)
class TableRow:
    """A name, the measurements for each column (None if there are none), and the paper's figures ("" likewise)."""

    name: str
    figures: tuple[Figure | None, ...]
    paper: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """One quantity for rows and columns; smaller is better."""

    title: str
    quantity: str
    head: tuple[str, ...]
    rows: tuple[TableRow, ...]

    def is_best(self, row: TableRow, column: int) -> bool:
        """Whether a row has the lowest mean of its column."""
        means = [figure.mean for other in self.rows if (figure := other.figures[column]) and figure.mean is not None]
        mine = row.figures[column]
        return mine is not None and mine.mean is not None and len(means) > 1 and mine.mean == min(means)

    @property
    def has_paper(self) -> bool:
        """Whether the paper has any figure."""
        return any(figure for row in self.rows for figure in row.paper)


def print_table(table: Table, console: Console) -> None:
    """The table in a terminal; the paper's figures stand below ours."""
    note = ", the paper's below" if table.has_paper else ""
    console.print(Text(f"{table.title}\n{table.quantity}{note}"))
    shown = RichTable(box=SIMPLE_HEAD)
    shown.add_column("", overflow="fold")
    for name in table.head:
        # In a narrow terminal, folding shows all of it.
        shown.add_column(name.replace(", ", "\n"), justify="right", overflow="fold")
    for row in table.rows:
        texts = []
        for column, (figure, paper) in enumerate(zip(row.figures, row.paper, strict=True)):
            text = Text("" if figure is None else str(figure), "bold" if table.is_best(row, column) else "")
            if table.has_paper:
                text.append(f"\n{paper}", "not bold dim")
            texts.append(text)
        shown.add_row(Text(row.name), *texts)
    console.print(shown)


def markdown(table: Table) -> str:
    """The table in Markdown."""
    note = ", in parentheses the paper's" if table.has_paper else ""
    lines = [f"{table.quantity}{note}:", "", "| | " + " | ".join(map(_in_markdown, table.head)) + " |"]
    lines.append("|---|" + "---|" * len(table.head))
    for row in table.rows:
        cells = [_in_markdown(row.name), *_beside(table, row, "**{}**", str, "–")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def latex(table: Table) -> str:
    """The table for a paper, with booktabs."""
    lines = [
        f"% {table.title}: {table.quantity}" + (", in parentheses the paper's" if table.has_paper else ""),
        "% needs \\usepackage{booktabs}",
        "\\begin{tabular}{l" + "r" * len(table.head) + "}",
        "\\toprule",
        " & ".join(["Method", *map(_in_latex, table.head)]) + " \\\\",
        "\\midrule",
    ]
    for row in table.rows:
        cells = [_in_latex(row.name), *_beside(table, row, "\\textbf{{{}}}", _in_latex, "--")]
        lines.append(f"{' & '.join(cells)} \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _beside(table: Table, row: TableRow, bold: str, escape: Callable[[str], str], nothing: str) -> Iterator[str]:
    """The cells of a row: our figure, bold if it is the best, with the paper's in parentheses."""
    for column, (figure, paper) in enumerate(zip(row.figures, row.paper, strict=True)):
        ours = "" if figure is None else escape(str(figure))
        ours = bold.format(ours) if table.is_best(row, column) else ours
        yield " ".join(part for part in (ours, f"({escape(paper)})" if paper else "") if part) or nothing


def _in_markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def _in_latex(text: str) -> str:
    special = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    special |= {"±": "$\\pm$", "–": "--", "†": "$^{\\dag}$"}
    return "".join(special.get(character, character) for character in text)


CSV_HEAD = ("table", "quantity", "row", "column", "mean", "deviation", "values", "diverged_at", "paper")


def csv_rows(tables: list[Table]) -> str:
    """All tables as one CSV file, with a line for each row and column."""
    rows: list[Iterable[str]] = [CSV_HEAD]
    for table in tables:
        for row in table.rows:
            for column, figure, paper in zip(table.head, row.figures, row.paper, strict=True):
                figure = figure or Figure()
                numbers = [" ".join(f"{value:.4f}" for value in figure.values), " ".join(map(str, figure.diverged))]
                mean, deviation = ("" if x is None else f"{x:.4f}" for x in (figure.mean, figure.deviation))
                names = map(text_cell, (table.title, table.quantity, row.name, column))
                rows.append([*names, mean, deviation, *numbers, text_cell(paper)])
    return csv_text(rows)
