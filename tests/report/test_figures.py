"""The figures as files: what is on them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from synthetic_runs import make_history, make_predictions, make_run

from rankingmatch.report import page_content
from rankingmatch.report.curves import training_panels
from rankingmatch.report.section import ReportInput
from rankingmatch.report.sections import embedding
from rankingmatch.report.sections.embedding import embedding_data
from rankingmatch.report.sections.pairs import pairs_of_run
from rankingmatch.report.thumbnails import Sprite, thumbnails_of

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from rankingmatch.report.figures import _embedding, _panel, draw_figures


@pytest.fixture(autouse=True)
def fast_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "embed", lambda vectors: vectors[:, :2])


def drawn(run: Any, key: str) -> Any:
    """The axes of a panel of a run."""
    (panel,) = (panel.to_data() for panel in training_panels(run) if panel.key == key)
    axes = Figure().subplots()
    _panel(axes, panel)
    return axes


def test_one_evaluation_is_a_visible_point() -> None:
    for key in ("losses", "errors", "learning_rate", "epoch_seconds", "epoch_memory"):
        axes = drawn(make_run(history=make_history(1)), key)
        assert all(line.get_marker() == "o" for line in axes.lines)
        assert all(line.get_marker() == "None" for line in drawn(make_run(), key).lines)


def test_one_evaluation_of_many_classes_has_a_width() -> None:
    axes = drawn(make_run(classes=20, history=make_history(1, classes=20)), "class_shares")
    left, right, *_ = axes.images[0].get_extent()
    assert (left, right) == (9.5, 10.5)


def test_every_curve_has_a_name_in_the_legend() -> None:
    axes = drawn(make_run(history=make_history(test_error=None)), "errors")
    assert [text.get_text() for text in axes.get_legend().get_texts()][-1] == "validation"
    assert [text.get_text() for text in drawn(make_run(), "learning_rate").get_legend().get_texts()] == [
        "learning rate"
    ]


def test_an_evaluation_interval_is_not_called_an_epoch() -> None:
    for key in ("epoch_seconds", "epoch_memory"):
        axes = drawn(make_run(), key)
        assert axes.get_xlabel() == "evaluation"
        assert "between two evaluations" in axes.get_title()


def test_a_map_says_its_error_and_its_number_of_points() -> None:
    axes = Figure().subplots()
    run = embedding_data(ReportInput([make_run()], [0], {}, points=40))["runs"][0]
    assert run["error"] is not None
    _embedding(axes, run, ["a", "b", "c"], kind="logits")
    assert axes.get_title() == f"logits: error {run['error']:.2f}% (40 test images)"


def test_a_map_may_have_more_points_than_usual() -> None:
    run = make_run(evaluated=make_predictions(count=2500))
    assert len(embedding_data(ReportInput([run], [0], {}))["runs"][0]["rows"]) == 2000
    assert len(embedding_data(ReportInput([run], [0], {}, points=2400))["runs"][0]["rows"]) == 2400


def test_every_class_has_its_pair() -> None:
    predictions = make_predictions(count=300, classes=12)
    section = pairs_of_run(0, predictions, "key", Sprite())
    assert section is not None
    assert [pair["label"] for pair in section["examples"]] == list(range(12))


def test_thumbnails_come_back_out_of_a_sprite() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (7, 8, 6, 3)).astype(np.uint8)
    sprite = Sprite()
    sprite.add_all(np.arange(7), images)
    data = sprite.to_data()
    assert data is not None
    assert np.array_equal(thumbnails_of(data)[:7], images)


@pytest.mark.parametrize("count", [1, 2])
def test_every_figure_is_written_and_is_not_blank(count: int, tmp_path: Path) -> None:
    runs = [make_run(name=f"run {number}", method=f"method {number}") for number in range(count)]
    files = draw_figures(page_content(runs), tmp_path)
    assert sorted(files) == sorted(tmp_path.iterdir())
    names = {path.name for path in files}
    assert {"errors.png", "confusion.svg", "map_logits.png", "similarity_outputs.png"} <= names or count == 2
    assert {"pairs.png", "pairs.svg"} <= names if count == 1 else {"pairs_0.png", "pairs_1.png"} <= names
    for path in tmp_path.glob("*.png"):
        assert np.asarray(Image.open(path).convert("L")).std() > 1, path
