"""Tables as in the paper: mean ± standard deviation, the paper's figure next to ours, the best in bold."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
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

    @classmethod
    def of(cls, values: Iterable[float | None], diverged: Iterable[int | None] = ()) -> "Figure":
        """A figure of those that are not None."""
        found = tuple(float(value) for value in values if value is not None)
        return cls(found, tuple(step for step in diverged if step is not None))

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

    @property
    def has_paper(self) -> bool:
        """Whether the paper has any figure."""
        return any(figure for row in self.rows for figure in row.paper)

    def cells(self, row: TableRow) -> Iterator[tuple[str, bool, str]]:
        """For each column: our figure, whether its mean is the lowest, and the paper's figure."""
        for column, (figure, paper) in enumerate(zip(row.figures, row.paper, strict=True)):
            means = [other.figures[column] for other in self.rows]
            known = [one.mean for one in means if one is not None and one.mean is not None]
            best = figure is not None and len(known) > 1 and figure.mean == min(known)
            yield "" if figure is None else str(figure), best, paper


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
        for ours, best, paper in table.cells(row):
            texts.append(Text(ours, "bold" if best else ""))
            if table.has_paper:
                texts[-1].append(f"\n{paper}", "not bold dim")
        shown.add_row(Text(row.name), *texts)
    console.print(shown)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, with the end of its last line."""
    first = "".join(f" {name} |" if name else " |" for name in head)
    return f"|{first}\n|{'---|' * len(head)}\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def markdown(table: Table) -> str:
    """The table in Markdown."""
    note = ", in parentheses the paper's" if table.has_paper else ""
    rows = (_texts(table, row, _in_markdown, "**{}**", "–") for row in table.rows)
    return f"{table.quantity}{note}:\n\n" + markdown_table(["", *map(_in_markdown, table.head)], rows)


def latex(table: Table) -> str:
    """The table for a paper, with booktabs."""
    rows = [["Method", *map(_in_latex, table.head)]]
    rows += [_texts(table, row, _in_latex, "\\textbf{{{}}}", "--") for row in table.rows]
    head, *lines = (f"{' & '.join(cells)} \\\\" for cells in rows)
    return "\n".join(
        [
            f"% {table.title}: {table.quantity}" + (", in parentheses the paper's" if table.has_paper else ""),
            "% needs \\usepackage{booktabs}",
            "\\begin{tabular}{l" + "r" * len(table.head) + "}",
            *("\\toprule", head, "\\midrule", *lines, "\\bottomrule"),
            "\\end{tabular}\n",
        ]
    )


def _texts(table: Table, row: TableRow, escape: Callable[[str], str], bold: str, nothing: str) -> list[str]:
    """The name of a row, and for each column our figure, bold if it is the best, with the paper's in parentheses."""
    texts = [escape(row.name)]
    for ours, best, paper in table.cells(row):
        shown = bold.format(escape(ours)) if best else escape(ours)
        texts.append(" ".join(filter(None, [shown, f"({escape(paper)})" if paper else ""])) or nothing)
    return texts


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
