"""Figures of errors: every row can be told from the others."""

import re
from pathlib import Path

import pytest

from rankingmatch.bench.curves import draw_errors, draw_learning
from rankingmatch.bench.tables import Figure

pytest.importorskip("matplotlib")


def lines_of(svg: str) -> list[str]:
    """The colors of the lines, without the grid, in the order in which they are drawn."""
    path = r'<path d="M[^"]*L[^"]*" clip-path="[^"]*" style="fill: none; stroke: (#[0-9a-f]{6})'
    return [color for color in re.findall(path, svg) if color != "#b0b0b0"]


def names_in(svg: str, names: list[str]) -> list[str]:
    """The names in the order in which they are written."""
    return [name for name in re.findall(r"<!-- (.*?) -->", svg) if name in names]


def test_ten_learning_curves_have_ten_colors_and_are_named_in_the_order_in_which_they_end(tmp_path: Path) -> None:
    ends = {"a": 30.0, "b": 5.0, "c": 80.0, "d": 20.0, "e": 10.0, "f": 9.0, "g": 8.0, "h": 7.0, "i": 6.0, "j": 4.0}
    rows = {name: {100: Figure((90.0, 92.0)), 200: Figure((end, end + 1))} for name, end in ends.items()}
    draw_learning("mine", {"Digits": rows}, tmp_path)
    svg = (tmp_path / "mine.svg").read_text()
    assert len(set(lines_of(svg))) == 10
    assert names_in(svg, list(ends)) == sorted(ends, key=lambda name: -ends[name])
    assert {"5", "10", "100"} <= set(names_in(svg, ["5", "10", "100"]))  # ticks


def test_the_last_row_stands_out_against_the_number_of_labels(tmp_path: Path) -> None:
    rows = {name: {10: Figure((50.0,)), 40: Figure((end,))} for name, end in {"a": 30.0, "b": 20.0}.items()}
    draw_errors("mine", {"photos": rows}, tmp_path)
    svg = (tmp_path / "mine.svg").read_text()
    assert lines_of(svg)[-1] == "#c2410c"
    assert len(set(lines_of(svg))) == 2
    assert names_in(svg, ["a", "b"]) == ["a", "b"]


def test_a_method_has_the_same_color_in_every_figure(tmp_path: Path) -> None:
    def colors(*names: str) -> list[str]:
        rows = {name: {100: Figure((50.0,)), 200: Figure((30.0,))} for name in names}
        draw_learning("mine", {"Digits": rows}, tmp_path)
        return lines_of((tmp_path / "mine.svg").read_text())

    first = colors("supervised", "rankingmatch-bm", "bm, without L2")
    assert colors("own", "rankingmatch-bm")[1] == first[1]
    assert colors("rankingmatch-bm", "flexmatch", "supervised")[2] == first[0]
    assert len({*first, *colors("flexmatch")}) == 4
