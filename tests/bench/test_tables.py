"""Tables in each of their forms."""

import csv
import io
import statistics

from rich.console import Console

from rankingmatch.bench.tables import Figure, Table, TableRow, csv_rows, latex, markdown, print_table

TABLE = Table(
    "Table 9",
    "test error %",
    ("CIFAR-10, 40 labels", "A_B & C"),
    (
        TableRow("SWWAE*", (None, None), ("25.67", "")),
        TableRow("worse", (Figure((5.0, 7.0)), Figure((1.0,))), ("4.00 ± 0.10", "")),
        TableRow("better", (Figure((1.0, 2.0)), Figure((2.0,))), ("", "")),
        TableRow("sick", (Figure((0.5,), (70,)), Figure((), (30,))), ("NaN-70", "")),
    ),
)


def test_a_figure_has_mean_and_standard_deviation_unless_a_run_diverged() -> None:
    figures = [Figure((2.0, 4.0, 6.0)), Figure((2.0,)), Figure(), Figure((2.0,), (70,))]
    assert list(map(str, figures)) == [f"4.00 ± {statistics.stdev([2, 4, 6]):.2f}", "2.00", "–", "NaN-70"]
    assert figures[-1].mean is None


def test_markdown_has_the_papers_figure_beside_ours_and_the_best_in_bold() -> None:
    lines = markdown(TABLE).splitlines()
    assert lines[0] == "test error %, in parentheses the paper's:"
    assert lines[2] == "| | CIFAR-10, 40 labels | A_B & C |"
    assert lines[4] == "| SWWAE\\* | (25.67) | – |"
    assert lines[5] == "| worse | 6.00 ± 1.41 (4.00 ± 0.10) | **1.00** |"
    assert lines[6] == "| better | **1.50 ± 0.71** | 2.00 |"
    assert lines[7] == "| sick | NaN-70 (NaN-70) | NaN-30 |"
    assert "**" not in markdown(Table("t", "q", ("a",), (TableRow("only", (Figure((1.0,)),), ("",)),)))


def test_latex_escapes_and_sets_bold() -> None:
    text = latex(TABLE)
    assert "A\\_B \\& C" in text
    assert "better & \\textbf{1.50 $\\pm$ 0.71} & 2.00 \\\\" in text
    assert "worse & 6.00 $\\pm$ 1.41 (4.00 $\\pm$ 0.10) & \\textbf{1.00} \\\\" in text
    assert text.count("\\begin{tabular}{lrr}") == text.count("\\end{tabular}") == 1


def test_csv_has_every_value() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_rows([TABLE]))))
    assert len(rows) == 8
    worse = next(row for row in rows if row["row"] == "worse" and row["column"].startswith("CIFAR"))
    assert (worse["mean"], worse["values"], worse["paper"]) == ("6.0000", "5.0000 7.0000", "4.00 ± 0.10")
    assert next(row for row in rows if row["row"] == "sick")["diverged_at"] == "70"


def test_the_terminal_shows_everything() -> None:
    console = Console(file=io.StringIO(), width=100)
    print_table(TABLE, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for word in ("SWWAE*", "25.67", "6.00 ± 1.41", "4.00 ± 0.10", "NaN-30"):
        assert word in text
