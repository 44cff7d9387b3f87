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
from synthetic_runs import HTML_NAME, make_history, make_predictions, make_run, report_input, without_truth

from rankingmatch.report import Status, json_in_html, page_content, render_page, runs_in_detail
from rankingmatch.report.run_data import mean_and_interval, paired_difference, prediction_metrics, wilson_interval
from rankingmatch.report.sections import LONGEST_SIDE, Sprite, thumbnail, thumbnails_of
from rankingmatch.report.sections.classes import class_rows, classes_data
from rankingmatch.report.sections.embedding import embed, embedding_data
from rankingmatch.report.sections.overview import fold_differences, gain_over_supervised, notes_of
from rankingmatch.report.sections.pairs import cosine_similarities, histogram, pairs_data
from rankingmatch.report.sections.pseudo_labels import pseudo_labels_data, select_gallery
from rankingmatch.report.sections.training import binned, comparison_panels, cost_panels, training_panels

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
    assert paired_difference(theirs, mine) == pytest.approx((25.0, 196 * math.sqrt(0.75 * 0.25 / 99)), rel=1e-4)
    assert paired_difference(mine, mine) == (0.0, 0.0)


def test_the_interval_over_folds_is_students() -> None:
    assert mean_and_interval(np.array([1.0, 2.0, 3.0])) == pytest.approx((2.0, 4.302653 / math.sqrt(3)), rel=1e-5)
    assert mean_and_interval(np.array([5.0])) == (5.0, None)


# --- classes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [90, 30])
def test_metrics_agree_with_counting_images_with_known_labels(known: int) -> None:
    whole = make_predictions(count=90)
    outputs = replace(whole, truth=np.where(np.arange(90) < known, whole.truth, -1))
    metrics = prediction_metrics(outputs)
    assert metrics is not None
    wrong = [int(row.argmax()) != truth for row, truth in zip(outputs.logits, outputs.truth, strict=True) if truth >= 0]
    assert metrics.wrong.tolist() == wrong
    assert (metrics.estimate["images"], metrics.confusion.sum(), len(wrong)) == (known, known, known)
    assert metrics.estimate["error"] == pytest.approx(100 * sum(wrong) / known)
    assert sum(one["count"] for one in metrics.calibration) == known
    assert prediction_metrics(without_truth(outputs)) is None


def test_class_rows_name_the_classes_a_class_is_confused_with() -> None:
    rows = class_rows(np.array([[8, 2, 0], [0, 5, 5], [0, 0, 0]]))
    assert [row["error"] for row in rows] == [20.0, 50.0, None]
    assert rows[0]["confused_with"] == [(1, 2)]
    assert rows[1]["precision"] == pytest.approx(71.43)


def test_the_most_confident_mistakes_come_first() -> None:
    (section,) = classes_data(report_input(evaluated=make_predictions(count=90)))
    confidences = [one["confidence"] for one in section["mistakes"]]
    assert confidences == sorted(confidences, reverse=True)
    assert all(one["truth"] != one["predicted"] for one in section["mistakes"])
    assert len(section["mistakes"]) == section["mistake_count"] > 0


# --- curves --------------------------------------------------------------------------------------------------


def test_a_run_has_every_curve_that_was_recorded() -> None:
    panels = {panel["key"]: panel["curves"] for panel in training_panels(make_run())}
    first = ["losses", "errors", "pseudo_labels", "class_shares", "learning_rate"]
    assert list(panels) == [*first, "epoch_seconds", "epoch_memory"]
    assert [curve["name"] for curve in panels["losses"]] == ["labeled ce", "total"]
    assert panels["pseudo_labels"][0]["y"] == [10, 20, 30, 40, 50]
    assert panels["epoch_seconds"][0]["y"] == [1.5] * 5  # ten steps of 0.15 s
    assert panels["epoch_memory"][0]["y"] == [101, 102, 103, 104, 105]


def test_steps_that_were_measured_give_curves_by_batch() -> None:
    costs = np.stack([np.arange(1, 51), np.full(50, 0.01), np.full(50, 2**21)], 1)
    panels = {panel["key"]: panel["curves"] for panel in cost_panels([make_run(step_costs=costs), make_run()])}
    assert len(panels["epoch_seconds"]) == 2
    assert [curve["y"] for curve in panels["batch_seconds"]] == [[10.0] * 50]
    assert [curve["y"] for curve in panels["batch_memory"]] == [[2.0] * 50]


def test_a_long_curve_is_averaged_in_bins_of_equal_length() -> None:
    curve = binned("x", np.arange(5000.0), np.arange(5000.0))
    assert len(curve["x"]) <= 2000
    assert [curve["y"][0], curve["y"][-1]] == [1.0, 4998.5]  # the means of 0 to 2, and of 4998 and 4999


def test_curves_of_several_runs_share_panels_and_what_is_not_finite_is_a_gap() -> None:
    history = [*make_history(3), {**make_history(1)[0], "step": 40, "loss_total": math.nan}]
    both = [make_run(name="a", history=history), make_run(name="b", history=make_history(purity=None, confident=None))]
    panels = {panel["key"]: panel["curves"] for panel in comparison_panels(both)}
    assert [curve["name"] for curve in panels["test_error"]] == ["a", "b"]
    assert [curve["name"] for curve in panels["purity"]] == ["a"]
    assert panels["loss_total"][0]["y"][-1] is None


# --- thumbnails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [8, 28, 100])
def test_each_thumbnail_is_found_at_its_index(side: int) -> None:
    images = make_predictions(count=23, side=side).images
    sprite = Sprite()
    indices = sprite.add(np.arange(23), images)
    assert sprite.add(np.arange(23), images) == indices
    data = sprite.to_data()
    assert data is not None
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data["image"].partition(",")[2]))))
    assert max(data["width"], data["height"]) == min(side, LONGEST_SIDE)
    for index, image in zip(indices, map(thumbnail, images), strict=True):
        y, x = index // data["columns"] * data["tile_height"], index % data["columns"] * data["tile_width"]
        shown = pixels[y : y + data["height"], x : x + data["width"]]
        assert abs(shown.astype(int) - image).mean() < (0.01 if side == 8 else 12)
        assert np.array_equal(thumbnails_of(data)[index], shown)
    assert Sprite().to_data() is None


# --- embedding and pairs ------------------------------------------------------------------------------------------


def test_an_embedding_keeps_clusters_together_and_is_the_same_every_time() -> None:
    rng = np.random.default_rng(0)
    vectors = np.concatenate([rng.normal(0, 1, (40, 5)), rng.normal(40, 1, (40, 5))])
    points = embed(vectors)
    assert np.array_equal(points, embed(vectors))
    first, second = points[:40], points[40:]
    within = max(np.linalg.norm(part - part.mean(0), axis=1).mean() for part in (first, second))
    assert np.linalg.norm(first.mean(0) - second.mean(0)) > 2 * within
    for width in (1, 2, 80):  # equal vectors
        assert np.isfinite(embed(np.ones((20, width)))).all()


@pytest.mark.parametrize(
    ("count", "points", "shown"), [(60, 20, 20), (2500, None, 2000), (2500, 2400, 2400), (6, 20, None)]
)
def test_an_embedding_is_of_a_sample_and_names_its_size(count: int, points: int | None, shown: int | None) -> None:
    runs = embedding_data(report_input(points, evaluated=make_predictions(count=count)))
    sizes = [(run["total"], len(run["rows"]), len(run["points"]["logits"][0])) for run in runs]
    assert sizes == ([] if shown is None else [(count, shown, shown)])


def test_pairs_agree_with_loops() -> None:
    outputs = make_predictions(count=30)
    assert outputs.features is not None
    lengths = [math.hypot(*row) for row in outputs.features]
    by_hand = [
        outputs.features[i] @ outputs.features[j] / lengths[i] / lengths[j]
        for i in range(30)
        for j in range(i + 1, 30)
        if outputs.truth[i] == outputs.truth[j]
    ]
    found = histogram(cosine_similarities(outputs.features), outputs.truth)
    assert found["same_class_mean"] == pytest.approx(np.mean(by_hand), abs=1e-4)
    assert sum(found["same_class"]) == pytest.approx(100, abs=0.1)
    for missing in (replace(outputs, features=None), without_truth(outputs)):
        assert pairs_data(report_input(evaluated=missing)) == []


def test_every_class_has_the_correct_pair_with_the_widest_gap() -> None:
    chosen = make_predictions(count=120, classes=12)
    assert chosen.features is not None
    (section,) = pairs_data(report_input(evaluated=chosen))
    assert [pair["label"] for pair in section["examples"]] == list(range(12))
    gap = cosine_similarities(chosen.logits) - cosine_similarities(chosen.features)
    for pair in section["examples"]:
        correct = np.flatnonzero((chosen.truth == pair["label"]) & ~chosen.wrong)
        widest = max(gap[i, j] for i in correct for j in correct if i != j)
        assert gap[pair["rows"]] == pytest.approx(widest)
        assert pair["outputs"] - pair["representations"] == pytest.approx(widest, abs=2e-4)


# --- pseudo-labels -------------------------------------------------------------------------------------------


def test_the_gallery_has_mistakes_of_every_class_and_some_of_each_confidence() -> None:
    predictions = make_predictions("unlabeled", 5000, classes=10, side=1)
    indices = select_gallery(predictions, 500)
    assert len(set(indices.tolist())) == len(indices) <= 500
    chosen = predictions.take(indices)
    for label in range(10):
        assert chosen.wrong[chosen.predicted == label].sum() >= 20
        lowest = [some.confidence[some.predicted == label].min() for some in (chosen, predictions)]
        assert lowest[0] == lowest[1]
    assert select_gallery(make_predictions(count=7), 500).tolist() == list(range(7))


def test_every_pseudo_label_is_listed_and_some_have_thumbnails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankingmatch.report.sections.pseudo_labels.THUMBNAILS", 30)
    report = report_input(unlabeled=make_predictions("unlabeled", 90), unlabeled_total=900)
    (section,) = pseudo_labels_data(report)
    assert (section["total"], section["threshold"], len(section["rows"])) == (900, 0.95, 90)
    assert 0 < sum(index >= 0 for index in section["thumbnails"]) <= 30


# --- several runs --------------------------------------------------------------------------------------------


def test_folds_are_compared_seed_by_seed() -> None:
    errors: dict[str, list[float | None]] = {"supervised": [20.0, 30.0, 25.0], "vat": [10.0, 22.0, None]}
    runs = [make_run(method=name, seed=seed, test_error=errors[name][seed]) for name in errors for seed in range(3)]
    (row,) = fold_differences(runs)
    assert (row["method"], row["baseline"], row["folds"], row["mean"]) == ("vat", "supervised", 2, -9.0)
    assert row["differences"] == {"0": -10.0, "1": -8.0}
    assert runs_in_detail(runs) == [0, 3]


def test_the_gain_over_supervised_is_measured_on_the_same_images() -> None:
    mine, alone = make_run(), make_run(name="alone", method="supervised", evaluated=make_predictions(seed=5))
    first, second = (prediction_metrics(run.evaluated) for run in (mine, alone))
    assert first is not None
    assert second is not None
    gain = gain_over_supervised(mine, [mine, alone])
    assert gain is not None
    assert gain["points"] == pytest.approx(second.estimate["error"] - first.estimate["error"])
    assert gain_over_supervised(alone, [mine, alone]) is None
    assert gain_over_supervised(mine, [mine, replace(alone, seed=1)]) is None
    recorded = gain_over_supervised(mine, [mine, make_run(method="supervised", evaluated=None, test_error=30.0)])
    assert recorded == {"points": 18.0, "half_width": None, "supervised_error": 30.0}


# --- the page ------------------------------------------------------------------------------------------------


def test_content_in_a_script_cannot_leave_it() -> None:
    text = json_in_html({"name": "</script><b>&\u2028", "numbers": [np.int64(1), np.float32(0.5)]})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"name": "</script><b>&\u2028", "numbers": [1, 0.5]}


def test_names_from_the_data_are_text() -> None:
    page = render_page(page_content([make_run(dataset="</script><b>x", command=f"rankingmatch {HTML_NAME}")]))
    assert "<img src=x" not in page
    assert "<b>x" not in page
    assert "<h1>rankingmatch-bm on &lt;/script&gt;&lt;b&gt;x</h1>" in page
    assert "\\u003cimg src=x onerror" in page


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"status": Status.DIVERGED, "diverged_at": 17, "diverged_part": "total"}, "step 17: 'total'"),
        ({"status": Status.UNDER_WAY}, "50 of 50 steps"),
        ({"history": make_history(test_error=None)}, "no test labels"),
        ({"history": []}, "no evaluation yet"),
        ({"notes": ("The outputs cannot be shown: no.",)}, "cannot be shown: no."),
        (  # a run's own note says it
            {"history": make_history(test_error=None), "evaluated": make_predictions("validation"), "notes": ("No.",)},
            "No.",
        ),
    ],
)
def test_the_page_notes_what_a_run_lacks(changed: dict[str, Any], words: str) -> None:
    (note,) = notes_of(make_run(**changed))
    assert words in note
    assert page_content([make_run(**changed)])["sections"]["overview"]["notes"][0]["text"] == note
