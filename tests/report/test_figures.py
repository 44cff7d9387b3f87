"""The figures as files: what is on them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from synthetic_runs import make_history, make_run, report_input

from rankingmatch.report import page_content
from rankingmatch.report.sections.embedding import embedding_data
from rankingmatch.report.sections.training import training_panels

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from rankingmatch.report.figures import _map, _panel, draw_figures


def drawn(key: str, **changed: Any) -> Any:
    """The axes of a panel of a run."""
    (panel,) = (panel for panel in training_panels(make_run(**changed)) if panel["key"] == key)
    axes = Figure().subplots()
    _panel(axes, panel)
    return axes


def test_one_evaluation_is_visible() -> None:
    for key in ("losses", "epoch_seconds"):
        assert {line.get_marker() for line in drawn(key, history=make_history(1)).lines} == {"o"}
        assert {line.get_marker() for line in drawn(key).lines} == {"None"}
    shares = drawn("class_shares", classes=20, history=make_history(1, classes=20))
    assert shares.images[0].get_extent()[:2] == [9.5, 10.5]


def test_curves_axes_and_maps_say_what_they_show() -> None:
    for key, name in (("errors", "validation"), ("learning_rate", "learning rate")):
        legend = drawn(key, history=make_history(test_error=None)).get_legend()
        assert [text.get_text() for text in legend.get_texts()] == [name]
    assert drawn("epoch_seconds").get_xlabel() == "evaluation"  # which need not be an epoch
    axes = Figure().subplots()
    (run,) = embedding_data(report_input(points=40))
    _map(axes, run, ["a", "b", "c"], kind="logits")
    assert axes.get_title() == f"logits: error {run['error']:.2f}% (40 test images)"


@pytest.mark.parametrize("count", [1, 2])
def test_every_figure_is_written_and_is_not_blank(count: int, tmp_path: Path) -> None:
    runs = [make_run(name=f"run {number}", method=f"method {number}") for number in range(count)]
    files = draw_figures(page_content(runs), tmp_path)
    assert sorted(files) == sorted(tmp_path.iterdir())
    names = {"confusion", "calibration", "map_logits", "similarity_outputs", "learning_rate"}
    names |= {"errors", "pairs"} if count == 1 else {"test_error", "pairs_0", "pairs_1", "differences"}
    assert {f"{name}.{suffix}" for name in names for suffix in ("png", "svg")} <= {path.name for path in files}
    for path in tmp_path.glob("*.png"):
        assert np.asarray(Image.open(path).convert("L")).std() > 1, path
