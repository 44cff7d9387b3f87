"""What the sections of the page are told, against plain loops."""

import base64
import io
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from subjects import NASTY, made_history, made_outputs, made_subject, without_truth

from rankingmatch.report import Status, page_content, render_page, runs_in_detail
from rankingmatch.report.assemble import json_in_html, notes_of
from rankingmatch.report.audit import audit_section, chosen_for_gallery
from rankingmatch.report.classes import class_rows, classes_section, judge
from rankingmatch.report.comparison import fold_differences, gain_over_supervised
from rankingmatch.report.maps import embed, maps_section
from rankingmatch.report.pairs import cosine_similarities, distribution, pairs_section
from rankingmatch.report.panels import binned, comparison_panels, cost_panels, training_panels
from rankingmatch.report.sheet import MOST, Sheet, thumbnail
from rankingmatch.report.statistics import mean_and_interval, paired_difference, wilson_interval

# --- how sure an error is ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wrong", "count"), [(0, 360), (11, 360), (180, 360), (360, 360)])
def test_the_ends_of_wilsons_interval_are_where_the_error_is_just_compatible(wrong: int, count: int) -> None:
    low, high = (end / 100 for end in wilson_interval(wrong, count))
    for end in (low, high):
        if 0 < end < 1:
            # A true error p fits what was seen if it is within 1.96 of p's own standard deviations.
            assert abs(wrong / count - end) / math.sqrt(end * (1 - end) / count) == pytest.approx(1.959964, abs=1e-5)
    assert low <= wrong / count <= high


def test_a_paired_difference_is_that_of_the_errors_and_knows_the_pairs() -> None:
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


def test_the_judgement_agrees_with_counting() -> None:
    outputs = made_outputs(count=90)
    judgement = judge(outputs)
    assert judgement is not None
    wrong = [int(row.argmax()) != truth for row, truth in zip(outputs.logits, outputs.truth, strict=True)]
    assert judgement.error == pytest.approx(100 * sum(wrong) / 90)
    assert judgement.wrong.tolist() == wrong
    assert sum(one["count"] for one in judgement.bins) == 90
    assert judge(without_truth(outputs)) is None


def test_only_images_with_known_truth_are_judged() -> None:
    outputs = made_outputs(count=90)
    half = replace(outputs, truth=np.where(np.arange(90) < 30, outputs.truth, -1))
    judgement = judge(half)
    assert judgement is not None
    assert (judgement.count, judgement.confusion.sum()) == (30, 30)


def test_class_rows_name_what_a_class_is_taken_for() -> None:
    rows = class_rows(np.array([[8, 2, 0], [0, 5, 5], [0, 0, 0]]))
    assert [row["error"] for row in rows] == [20.0, 50.0, None]
    assert rows[0]["taken"] == [[1, 2]]
    assert rows[1]["precision"] == pytest.approx(71.43)


def test_mistakes_come_surest_first() -> None:
    outputs, sheet = made_outputs(count=90), Sheet()
    section = classes_section(outputs, sheet)
    assert section is not None
    confidences = [one["confidence"] for one in section["mistakes"]]
    assert confidences == sorted(confidences, reverse=True)
    assert all(one["truth"] != one["predicted"] for one in section["mistakes"])
    assert len(section["mistakes"]) == section["mistakeCount"] > 0


# --- curves --------------------------------------------------------------------------------------------------


def test_a_run_has_every_curve_that_was_recorded() -> None:
    panels = {panel.key: panel for panel in training_panels(made_subject())}
    assert set(panels) == {
        "losses",
        "errors",
        "pseudo_labels",
        "class_shares",
        "learning_rate",
        "epoch_seconds",
        "epoch_memory",
    }
    assert [line.name for line in panels["losses"].lines] == ["labeled ce", "total"]
    assert panels["pseudo_labels"].lines[0].y == pytest.approx([10, 20, 30, 40, 50])
    assert panels["epoch_seconds"].lines[0].y == pytest.approx([1.5] * 5)  # ten steps of 0.15 s
    assert panels["epoch_memory"].lines[0].y == [101, 102, 103, 104, 105]


def test_an_old_run_has_the_curves_it_can_have() -> None:
    new = ("class_shares", "step_seconds", "memory")
    history = [{k: v for k, v in line.items() if k not in new} for line in made_history()]
    subject = made_subject(history=history)
    panels = {panel.key: panel for panel in training_panels(subject)}
    assert set(panels) == {"losses", "errors", "pseudo_labels", "learning_rate", "epoch_seconds"}
    assert panels["epoch_seconds"].lines[0].y == [2.0] * 5  # by the clock
    assert any("earlier version" in note for note in notes_of(subject))


def test_many_classes_are_a_heat_map() -> None:
    (panel,) = (panel for panel in training_panels(made_subject(classes=200)) if panel.key == "class_shares")
    assert panel.grid is not None
    assert (len(panel.grid), len(panel.grid[0])) == (200, 5)


def test_steps_that_were_measured_give_curves_by_batch() -> None:
    costs = np.stack([np.arange(1, 51), np.full(50, 0.01), np.full(50, 2**21)], 1)
    panels = {panel.key: panel for panel in cost_panels([made_subject(step_costs=costs), made_subject()])}
    assert len(panels["epoch_seconds"].lines) == 2
    (line,) = panels["batch_seconds"].lines
    assert line.y == pytest.approx([10.0] * 50)
    assert panels["batch_memory"].lines[0].y == pytest.approx([2.0] * 50)


def test_a_long_line_is_averaged_in_equal_stretches() -> None:
    line = binned("x", np.arange(5000.0), np.arange(5000.0))
    assert len(line.x) <= 2000
    assert line.y[0] == np.mean([0, 1, 2])
    assert line.y[-1] == np.mean([4998, 4999])


def test_curves_of_several_runs_are_laid_over_each_other() -> None:
    both = [made_subject(name="a"), made_subject(name="b", history=made_history(purity=None, confident=None))]
    panels = {panel.key: panel for panel in comparison_panels(both)}
    assert [line.name for line in panels["test_error"].lines] == ["a", "b"]
    assert [line.name for line in panels["purity"].lines] == ["a"]


def test_a_loss_that_is_not_finite_is_a_gap() -> None:
    history = [*made_history(3), {**made_history(1)[0], "step": 40, "loss_total": math.nan}]
    (losses, *_) = training_panels(made_subject(history=history))
    assert losses.to_json()["lines"][-1]["y"][-1] is None


# --- thumbnails ----------------------------------------------------------------------------------------------


def picture(address: object) -> np.ndarray:
    assert isinstance(address, str)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))


@pytest.mark.parametrize("side", [8, 28, 32])
def test_each_image_is_found_at_its_place(side: int) -> None:
    images = made_outputs(count=23, side=side).images
    sheet = Sheet()
    places = sheet.places(np.arange(23), images)
    assert sheet.places(np.arange(23), images) == places
    about = sheet.to_json()
    assert about is not None
    whole = picture(about["image"])
    for place, image in zip(places, images, strict=True):
        y, x = place // about["columns"] * about["stepY"], place % about["columns"] * about["stepX"]  # type: ignore[operator]
        shown = whole[y : y + side, x : x + side].astype(int)
        assert abs(shown - image).mean() < (0.01 if side == 8 else 12)
    assert Sheet().to_json() is None


def test_large_images_become_small_ones() -> None:
    assert thumbnail(np.zeros((200, 100, 3), np.uint8)).shape == (MOST, MOST // 2, 3)
    assert thumbnail(np.zeros((200, 100, 1), np.uint8)).shape == (MOST, MOST // 2, 1)


# --- maps and pairs ------------------------------------------------------------------------------------------


def test_a_map_keeps_clusters_together_and_is_the_same_every_time() -> None:
    rng = np.random.default_rng(0)
    vectors = np.concatenate([rng.normal(0, 1, (40, 5)), rng.normal(40, 1, (40, 5))])
    places = embed(vectors)
    assert np.array_equal(places, embed(vectors))
    first, second = places[:40], places[40:]
    within = max(np.linalg.norm(part - part.mean(0), axis=1).mean() for part in (first, second))
    assert np.linalg.norm(first.mean(0) - second.mean(0)) > 2 * within


@pytest.mark.parametrize("width", [1, 2, 80])
def test_maps_of_any_width_and_of_equal_vectors_can_be_made(width: int) -> None:
    assert np.isfinite(embed(np.ones((20, width)))).all()


def test_a_map_says_how_many_points_of_how_many() -> None:
    section = maps_section(made_outputs(count=60), Sheet(), most=20)
    assert section is not None
    assert (section["total"], len(section["rows"]), len(section["maps"]["logits"][0])) == (60, 20, 20)
    assert maps_section(made_outputs(count=6), Sheet(), most=20) is None


def test_pairs_agree_with_loops() -> None:
    outputs = made_outputs(count=30)
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
    found = distribution(similar, outputs.truth)
    assert found["sameMean"] == pytest.approx(np.mean(by_hand), abs=1e-4)
    assert sum(found["same"]) == pytest.approx(100, abs=0.1)
    section = pairs_section(outputs, Sheet())
    assert section is not None
    assert all(one["outputs"] >= one["representations"] - 2 for one in section["examples"])
    assert pairs_section(replace(outputs, features=None), Sheet()) is None
    assert pairs_section(without_truth(outputs), Sheet()) is None


# --- pseudo-labels -------------------------------------------------------------------------------------------


def test_the_gallery_has_mistakes_of_every_class_and_some_of_each_confidence() -> None:
    rng = np.random.default_rng(0)
    predicted, confidence = rng.integers(0, 10, 5000), rng.random(5000)
    wrong = rng.random(5000) < 0.1
    chosen = chosen_for_gallery(predicted, confidence, wrong, 500)
    assert len(set(chosen.tolist())) == len(chosen) <= 500
    assert set(predicted[chosen]) == set(range(10))
    for label in range(10):
        mine = chosen[predicted[chosen] == label]
        assert wrong[mine].sum() >= 20
        assert confidence[mine].min() < 0.1
    assert chosen_for_gallery(predicted[:7], confidence[:7], wrong[:7], 500).tolist() == list(range(7))


def test_the_audit_lists_every_image_and_pictures_some() -> None:
    section = audit_section(made_outputs("unlabeled", 90), Sheet(), total=900, threshold=0.95, most=30)
    assert section is not None
    assert (section["total"], len(section["rows"])) == (900, 90)
    assert 0 < sum(place >= 0 for place in section["places"]) <= 30


# --- several runs --------------------------------------------------------------------------------------------


def test_folds_are_compared_seed_by_seed() -> None:
    errors: dict[str, list[float | None]] = {"supervised": [20.0, 30.0, 25.0], "rankingmatch-bm": [10.0, 22.0, None]}
    subjects = [
        made_subject(name=f"{method} {seed}", method=method, seed=seed, test_error=error)
        for method, values in errors.items()
        for seed, error in enumerate(values)
    ]
    (row,) = fold_differences(subjects)
    assert (row["method"], row["baseline"], row["folds"], row["mean"]) == ("rankingmatch-bm", "supervised", 2, -9.0)
    assert row["gaps"] == {"0": -10.0, "1": -8.0}
    assert runs_in_detail(subjects) == [0, 3]


def test_the_gain_over_labels_alone_is_measured_on_the_same_images() -> None:
    mine, alone = made_subject(), made_subject(name="alone", method="supervised", judged=made_outputs(seed=5))
    gain = gain_over_supervised(mine, [mine, alone])
    assert gain is not None
    first, second = judge(made_outputs()), judge(made_outputs(seed=5))
    assert first is not None
    assert second is not None
    assert gain["gain"] == pytest.approx(second.error - first.error)
    assert gain_over_supervised(alone, [mine, alone]) is None
    assert gain_over_supervised(mine, [mine, replace(alone, seed=1)]) is None


# --- the page ------------------------------------------------------------------------------------------------


def test_content_in_a_script_cannot_leave_it() -> None:
    text = json_in_html({"name": "</script><b>&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"name": "</script><b>&\u2028"}


def test_names_from_the_data_are_text() -> None:
    page = render_page(page_content([made_subject(dataset="</script><b>x", command=f"rankingmatch {NASTY}")]))
    assert "<img src=x" not in page
    assert "<b>x" not in page
    assert "&lt;img src=x onerror" in page


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"status": Status.DIVERGED, "diverged_at": 17, "diverged_part": "total"}, "stopped at step 17: 'total'"),
        ({"status": Status.UNDER_WAY}, "not finished: 50 of 50 steps"),
        ({"history": made_history(test_error=None)}, "no test labels"),
        ({"history": []}, "no evaluation yet"),
        ({"notes": ("The outputs cannot be shown: no.",)}, "cannot be shown: no."),
    ],
)
def test_what_a_run_lacks_is_said(changed: dict[str, Any], words: str) -> None:
    subject = made_subject(**changed)
    assert any(words in note for note in notes_of(subject))
    assert words.replace("'", "&#39;") in render_page(page_content([subject]))
