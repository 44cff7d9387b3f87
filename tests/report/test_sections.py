"""What each section of the page is built from, against plain loops."""

import base64
import io
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from synthetic_runs import HTML_NAME, make_history, make_predictions, make_run, without_truth

from rankingmatch.report import Status, page_content, render_page, runs_in_detail
from rankingmatch.report.comparison import fold_differences, gain_over_supervised
from rankingmatch.report.curves import binned, comparison_panels, cost_panels, training_panels
from rankingmatch.report.intervals import mean_and_interval, paired_difference, wilson_interval
from rankingmatch.report.notes import notes_of
from rankingmatch.report.page import json_in_html
from rankingmatch.report.run_data import prediction_metrics
from rankingmatch.report.section import ReportInput
from rankingmatch.report.sections import embedding
from rankingmatch.report.sections.classes import class_rows, classes_of_run
from rankingmatch.report.sections.embedding import embed, embedding_data, embedding_of_run
from rankingmatch.report.sections.pairs import cosine_similarities, histogram, pairs_of_run
from rankingmatch.report.sections.pseudo_labels import pseudo_labels_of_run, select_gallery
from rankingmatch.report.thumbnails import LONGEST_SIDE, Sprite, SpriteData, thumbnail

# --- confidence intervals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wrong", "count"), [(0, 360), (11, 360), (180, 360), (360, 360)])
def test_the_ends_of_wilsons_interval_are_where_the_error_is_barely_compatible(wrong: int, count: int) -> None:
    low, high = (end / 100 for end in wilson_interval(wrong, count))
    for end in (low, high):
        if 0 < end < 1:
            # A true error p fits what was seen if it is within 1.96 of p's own standard deviations.
            assert abs(wrong / count - end) / math.sqrt(end * (1 - end) / count) == pytest.approx(1.959964, abs=1e-5)
    assert low <= wrong / count <= high


def test_a_paired_difference_is_that_of_the_errors_with_an_interval_over_pairs() -> None:
    mine, theirs = np.array([0, 0, 1, 0] * 25, bool), np.array([1, 0, 1, 0] * 25, bool)
    mean, half = paired_difference(theirs, mine)
    assert mean == pytest.approx(25.0)
    assert 0 < half < 10
    assert paired_difference(mine, mine) == (0.0, 0.0)


def test_the_interval_over_folds_is_students() -> None:
    mean, half = mean_and_interval(np.array([1.0, 2.0, 3.0]))
    assert mean == 2.0
    assert half == pytest.approx(4.302653 * 1 / math.sqrt(3), rel=1e-5)
    assert mean_and_interval(np.array([5.0])) == (5.0, None)


# --- classes -------------------------------------------------------------------------------------------------


def test_metrics_agree_with_counting() -> None:
    outputs = make_predictions(count=90)
    metrics = prediction_metrics(outputs)
    assert metrics is not None
    wrong = [int(row.argmax()) != truth for row, truth in zip(outputs.logits, outputs.truth, strict=True)]
    assert metrics.errors.error == pytest.approx(100 * sum(wrong) / 90)
    assert metrics.wrong.tolist() == wrong
    assert sum(one["count"] for one in metrics.bins) == 90
    assert prediction_metrics(without_truth(outputs)) is None


def test_only_images_with_known_labels_are_counted() -> None:
    outputs = make_predictions(count=90)
    half = replace(outputs, truth=np.where(np.arange(90) < 30, outputs.truth, -1))
    metrics = prediction_metrics(half)
    assert metrics is not None
    assert (metrics.count, metrics.confusion.sum()) == (30, 30)


def test_class_rows_name_the_classes_a_class_is_confused_with() -> None:
    rows = class_rows(np.array([[8, 2, 0], [0, 5, 5], [0, 0, 0]]))
    assert [row["error"] for row in rows] == [20.0, 50.0, None]
    assert rows[0]["confused_with"] == [(1, 2)]
    assert rows[1]["precision"] == pytest.approx(71.43)


def test_the_most_confident_mistakes_come_first() -> None:
    section = classes_of_run(0, make_predictions(count=90), "key", Sprite())
    assert section is not None
    confidences = [one["confidence"] for one in section["mistakes"]]
    assert confidences == sorted(confidences, reverse=True)
    assert all(one["truth"] != one["predicted"] for one in section["mistakes"])
    assert len(section["mistakes"]) == section["mistake_count"] > 0


# --- curves --------------------------------------------------------------------------------------------------


def test_a_run_has_every_curve_that_was_recorded() -> None:
    panels = {panel.key: panel for panel in training_panels(make_run())}
    assert set(panels) == {
        "losses",
        "errors",
        "pseudo_labels",
        "class_shares",
        "learning_rate",
        "epoch_seconds",
        "epoch_memory",
    }
    assert [curve.name for curve in panels["losses"].curves] == ["labeled ce", "total"]
    assert panels["pseudo_labels"].curves[0].y == pytest.approx([10, 20, 30, 40, 50])
    assert panels["epoch_seconds"].curves[0].y == pytest.approx([1.5] * 5)  # ten steps of 0.15 s
    assert panels["epoch_memory"].curves[0].y == [101, 102, 103, 104, 105]


def test_an_old_run_has_the_curves_it_can_have() -> None:
    new = ("class_shares", "step_seconds", "memory")
    history = [{k: v for k, v in line.items() if k not in new} for line in make_history()]
    run = make_run(history=history)
    panels = {panel.key: panel for panel in training_panels(run)}
    assert set(panels) == {"losses", "errors", "pseudo_labels", "learning_rate", "epoch_seconds"}
    assert panels["epoch_seconds"].curves[0].y == [2.0] * 5  # by the clock
    assert any("earlier version" in note for note in notes_of(run))


def test_many_classes_are_a_heat_map() -> None:
    (panel,) = (panel for panel in training_panels(make_run(classes=200)) if panel.key == "class_shares")
    shares = panel.to_data()["heat_map"]
    assert shares is not None
    assert (len(shares), len(shares[0])) == (200, 5)


def test_steps_that_were_measured_give_curves_by_batch() -> None:
    costs = np.stack([np.arange(1, 51), np.full(50, 0.01), np.full(50, 2**21)], 1)
    panels = {panel.key: panel for panel in cost_panels([make_run(step_costs=costs), make_run()])}
    assert len(panels["epoch_seconds"].curves) == 2
    (curve,) = panels["batch_seconds"].curves
    assert curve.y == pytest.approx([10.0] * 50)
    assert panels["batch_memory"].curves[0].y == pytest.approx([2.0] * 50)


def test_a_long_curve_is_averaged_in_bins_of_equal_length() -> None:
    curve = binned("x", np.arange(5000.0), np.arange(5000.0))
    assert len(curve.x) <= 2000
    assert curve.y[0] == np.mean([0, 1, 2])
    assert curve.y[-1] == np.mean([4998, 4999])


def test_curves_of_several_runs_share_panels() -> None:
    both = [make_run(name="a"), make_run(name="b", history=make_history(purity=None, confident=None))]
    panels = {panel.key: panel for panel in comparison_panels(both)}
    assert [curve.name for curve in panels["test_error"].curves] == ["a", "b"]
    assert [curve.name for curve in panels["purity"].curves] == ["a"]


def test_a_loss_that_is_not_finite_is_a_gap() -> None:
    history = [*make_history(3), {**make_history(1)[0], "step": 40, "loss_total": math.nan}]
    (losses, *_) = training_panels(make_run(history=history))
    assert losses.to_data()["curves"][-1]["y"][-1] is None


# --- thumbnails ----------------------------------------------------------------------------------------------


def decoded(sprite: SpriteData) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(sprite["image"].partition(",")[2]))))


@pytest.mark.parametrize("side", [8, 28, 32])
def test_each_thumbnail_is_found_at_its_index(side: int) -> None:
    images = make_predictions(count=23, side=side).images
    sprite = Sprite()
    indices = sprite.add_all(np.arange(23), images)
    assert sprite.add_all(np.arange(23), images) == indices
    data = sprite.to_data()
    assert data is not None
    pixels = decoded(data)
    for index, image in zip(indices, images, strict=True):
        y, x = index // data["columns"] * data["tile_height"], index % data["columns"] * data["tile_width"]
        shown = pixels[y : y + side, x : x + side].astype(int)
        assert abs(shown - image).mean() < (0.01 if side == 8 else 12)
    assert Sprite().to_data() is None


def test_large_images_become_small_ones() -> None:
    assert thumbnail(np.zeros((200, 100, 3), np.uint8)).shape == (LONGEST_SIDE, LONGEST_SIDE // 2, 3)
    assert thumbnail(np.zeros((200, 100, 1), np.uint8)).shape == (LONGEST_SIDE, LONGEST_SIDE // 2, 1)


# --- embedding and pairs ------------------------------------------------------------------------------------------


def test_an_embedding_keeps_clusters_together_and_is_the_same_every_time() -> None:
    rng = np.random.default_rng(0)
    vectors = np.concatenate([rng.normal(0, 1, (40, 5)), rng.normal(40, 1, (40, 5))])
    points = embed(vectors)
    assert np.array_equal(points, embed(vectors))
    first, second = points[:40], points[40:]
    within = max(np.linalg.norm(part - part.mean(0), axis=1).mean() for part in (first, second))
    assert np.linalg.norm(first.mean(0) - second.mean(0)) > 2 * within


@pytest.mark.parametrize("width", [1, 2, 80])
def test_vectors_of_any_width_and_equal_vectors_can_be_embedded(width: int) -> None:
    assert np.isfinite(embed(np.ones((20, width)))).all()


def test_an_embedding_is_of_a_sample_and_names_its_size() -> None:
    section = embedding_of_run(0, make_predictions(count=60), "key", Sprite(), points=20)
    assert (section["total"], len(section["rows"]), len(section["points"]["logits"][0])) == (60, 20, 20)
    few = make_run(evaluated=make_predictions(count=6))
    assert embedding_data(ReportInput([few], [0], {})) == {"runs": []}


def test_pairs_agree_with_loops() -> None:
    outputs = make_predictions(count=30)
    assert outputs.features is not None
    similar = cosine_similarities(outputs.features)
    by_hand = [
        outputs.features[i]
        @ outputs.features[j]
        / np.linalg.norm(outputs.features[i])
        / np.linalg.norm(outputs.features[j])
        for i in range(30)
        for j in range(i + 1, 30)
        if outputs.truth[i] == outputs.truth[j]
    ]
    found = histogram(similar, outputs.truth)
    assert found["same_class_mean"] == pytest.approx(np.mean(by_hand), abs=1e-4)
    assert sum(found["same_class"]) == pytest.approx(100, abs=0.1)
    section = pairs_of_run(0, outputs, "key", Sprite())
    assert section is not None
    assert all(one["outputs"] >= one["representations"] - 2 for one in section["examples"])
    assert pairs_of_run(0, replace(outputs, features=None), "key", Sprite()) is None
    assert pairs_of_run(0, without_truth(outputs), "key", Sprite()) is None


# --- pseudo-labels -------------------------------------------------------------------------------------------


def test_the_gallery_has_mistakes_of_every_class_and_some_of_each_confidence() -> None:
    rng = np.random.default_rng(0)
    predicted, confidence = rng.integers(0, 10, 5000), rng.random(5000)
    wrong = rng.random(5000) < 0.1
    chosen = select_gallery(predicted, confidence, wrong, 500)
    assert len(set(chosen.tolist())) == len(chosen) <= 500
    assert set(predicted[chosen]) == set(range(10))
    for label in range(10):
        mine = chosen[predicted[chosen] == label]
        assert wrong[mine].sum() >= 20
        assert confidence[mine].min() < 0.1
    assert select_gallery(predicted[:7], confidence[:7], wrong[:7], 500).tolist() == list(range(7))


def test_every_pseudo_label_is_listed_and_some_have_thumbnails() -> None:
    run = make_run(unlabeled_total=900)
    section = pseudo_labels_of_run(0, run, make_predictions("unlabeled", 90), "key", Sprite(), thumbnails=30)
    assert (section["total"], section["threshold"], len(section["rows"])) == (900, 0.95, 90)
    assert 0 < sum(index >= 0 for index in section["thumbnails"]) <= 30


# --- several runs --------------------------------------------------------------------------------------------


def test_folds_are_compared_seed_by_seed() -> None:
    errors: dict[str, list[float | None]] = {"supervised": [20.0, 30.0, 25.0], "rankingmatch-bm": [10.0, 22.0, None]}
    runs = [
        make_run(name=f"{method} {seed}", method=method, seed=seed, test_error=error)
        for method, values in errors.items()
        for seed, error in enumerate(values)
    ]
    (row,) = fold_differences(runs)
    assert (row["method"], row["baseline"], row["folds"], row["mean"]) == ("rankingmatch-bm", "supervised", 2, -9.0)
    assert row["differences"] == {"0": -10.0, "1": -8.0}
    assert runs_in_detail(runs) == [0, 3]


def test_the_gain_over_supervised_is_measured_on_the_same_images() -> None:
    mine, alone = make_run(), make_run(name="alone", method="supervised", evaluated=make_predictions(seed=5))
    gain = gain_over_supervised(mine, [mine, alone])
    assert gain is not None
    first, second = prediction_metrics(make_predictions()), prediction_metrics(make_predictions(seed=5))
    assert first is not None
    assert second is not None
    assert gain["points"] == pytest.approx(second.errors.error - first.errors.error)
    assert gain_over_supervised(alone, [mine, alone]) is None
    assert gain_over_supervised(mine, [mine, replace(alone, seed=1)]) is None


@pytest.fixture
def fast_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "embed", lambda vectors: vectors[:, :2])


# --- the page ------------------------------------------------------------------------------------------------


def test_content_in_a_script_cannot_leave_it() -> None:
    text = json_in_html({"name": "</script><b>&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"name": "</script><b>&\u2028"}


@pytest.mark.usefixtures("fast_embedding")
def test_names_from_the_data_are_text() -> None:
    page = render_page(page_content([make_run(dataset="</script><b>x", command=f"rankingmatch {HTML_NAME}")]))
    assert "<img src=x" not in page
    assert "<b>x" not in page
    assert "<h1>rankingmatch-bm on &lt;/script&gt;&lt;b&gt;x</h1>" in page
    assert "\\u003cimg src=x onerror" in page


def test_one_note_says_that_there_are_no_test_images() -> None:
    note = "There are no test images: validation images are shown instead."
    run = make_run(history=make_history(test_error=None), evaluated=make_predictions("validation"), notes=(note,))
    assert notes_of(run) == [note]


@pytest.mark.usefixtures("fast_embedding")
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"status": Status.DIVERGED, "diverged_at": 17, "diverged_part": "total"}, "stopped at step 17: 'total'"),
        ({"status": Status.UNDER_WAY}, "not finished: 50 of 50 steps"),
        ({"history": make_history(test_error=None)}, "no test labels"),
        ({"history": []}, "no evaluation yet"),
        ({"notes": ("The outputs cannot be shown: no.",)}, "cannot be shown: no."),
    ],
)
def test_the_page_notes_what_a_run_lacks(changed: dict[str, Any], words: str) -> None:
    run = make_run(**changed)
    assert any(words in note for note in notes_of(run))
    assert any(words in note["text"] for note in page_content([run])["sections"]["overview"]["notes"])
