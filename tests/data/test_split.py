"""Labels are hidden evenly, by the seed; impossible settings are errors."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rankingmatch.core.errors import DataError
from rankingmatch.data import UNLABELED, Dataset, DataSettings, Images, hide_labels, make_split, rows_to_json

NAMES = ("cat", "dog", "owl")


def dataset(counts: tuple[int, int, int] = (10, 20, 30)) -> Dataset:
    labels = np.repeat(np.arange(3), counts)
    images = np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1).repeat(4, 1)
    return Dataset(NAMES, Images(images, labels))


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        *[(3, [1, 1, 1]), (12, [4, 4, 4]), (13, [4, 4, 5]), (14, [4, 5, 5])],
        *[(36, [10, 13, 13]), (45, [10, 17, 18]), (60, [10, 20, 30])],  # a class with fewer labels keeps all of them
    ],
)
def test_the_same_number_of_labels_remains_for_each_class(count: int, expected: list[int]) -> None:
    labels = dataset().train.labels
    visible = hide_labels(labels, count, NAMES, np.random.default_rng(0))
    kept = visible != UNLABELED
    assert sorted(np.bincount(visible[kept]).tolist()) == expected
    assert (visible[kept] == labels[kept]).all()


def test_balanced_batches_have_all_classes_equally_often() -> None:
    split = make_split(dataset((2, 3, 7)), DataSettings(balanced=True), seed=0)
    assert len(split.labeled_rows) == 12
    assert np.bincount(split.labels[split.drawn_rows]).tolist() == [7, 7, 7]
    assert set(split.drawn_rows) == set(split.labeled_rows)
    plain = make_split(dataset((2, 3, 7)), DataSettings(), seed=0)
    assert (plain.drawn_rows == plain.labeled_rows).all()


def test_validation_images_are_held_out_of_training() -> None:
    split = make_split(dataset(), DataSettings(labels=6, validation=20), seed=0)
    assert split.validation is not None
    kept = set(split.labeled_rows) | set(split.unlabeled_rows)
    assert (len(split.validation), len(kept)) == (20, 40)
    assert not set(split.validation_rows) & kept
    assert (split.validation.images == split.images[split.validation_rows]).all()
    assert (split.labels[split.validation_rows] == UNLABELED).all()
    assert (split.validation.labels != UNLABELED).all()


def test_a_given_validation_set_is_kept() -> None:
    given = Images(np.zeros((2, 4, 1, 1), np.uint8), np.array([0, 1]))
    split = make_split(replace(dataset(), validation=given), DataSettings(validation=20), seed=0)
    assert split.validation is given
    assert len(split.labeled_rows) == 60


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a split.json"),
        ('{"labeled": [1]}', "is not a split.json"),
        ('{"labeled": ["a"], "validation": []}', "is not a split.json"),
        ('{"labeled": [1, 1], "validation": []}', "has rows twice"),
        ('{"labeled": [1], "validation": [1]}', "has rows twice"),
        ('{"labeled": [60], "validation": []}', "beyond the 60"),
        ('{"labeled": [-1], "validation": []}', "beyond the 60"),
        ('{"labeled": [0, 1], "validation": []}', "the class 'dog' has no labeled image left"),
        *[
            (f'{{"labeled": [0], "validation": [], "unlabeled": {rows}}}', "has rows twice or beyond|not a split.json")
            for rows in ("[0]", "[600]", "[-1]", "[[5]]", "[5, 5]", '["a"]')
        ],
    ],
)
def test_a_split_that_cannot_be_used_is_an_error(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(content)
    with pytest.raises(DataError, match=message):
        make_split(dataset(), DataSettings(split=str(tmp_path / "split.json")), seed=0)


@pytest.mark.parametrize(("now", "warned"), [("before", False), ("after", True)])
def test_a_split_of_other_files_causes_a_warning(
    now: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = make_split(replace(dataset(), fingerprint="before"), DataSettings(labels=12), seed=0)
    path = tmp_path / "split.json"
    path.write_text(json.dumps(rows_to_json(first)))
    make_split(replace(dataset(), fingerprint=now), DataSettings(split=str(path)), seed=0)
    assert ("was written when the folder's files were different" in caplog.text) == warned


def test_predefined_folds_are_used_and_the_other_labeled_images_are_for_validation() -> None:
    train = dataset().train
    labels = train.labels.copy()
    labels[45:] = UNLABELED
    folds = (np.array([0, 11, 31]), np.array([2, 12, 33]))
    split = make_split(Dataset(NAMES, Images(train.images, labels), folds=folds), DataSettings(), seed=3)
    assert split.labeled_rows.tolist() == [2, 12, 33]
    assert len(split.validation_rows) == 42
    assert split.unlabeled_rows.tolist() == list(range(45, 60))


def test_labeled_images_are_added_to_the_unlabeled_ones_only_on_request() -> None:
    alone = make_split(dataset(), DataSettings(labels=6), seed=0)
    together = make_split(dataset(), DataSettings(labels=6, include_labeled=True), seed=0)
    assert len(alone.unlabeled_rows) == 54
    assert not set(alone.unlabeled_rows) & set(alone.labeled_rows)
    assert len(together.unlabeled_rows) == 60


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (DataSettings(labels=61), "labels is 61, more than the 60"),
        (DataSettings(labels=2), "labels is 2, fewer than the 3"),
        (DataSettings(validation=60), "validation is 60"),
    ],
)
def test_impossible_settings_are_errors(settings: DataSettings, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        make_split(dataset(), settings, seed=0)


def test_a_class_without_labeled_images_is_an_error() -> None:
    with pytest.raises(DataError, match="class 'owl'"):
        make_split(dataset((5, 5, 0)), DataSettings(labels=6), seed=0)
    unlabeled = Images(dataset().train.images, np.full(60, UNLABELED))
    with pytest.raises(DataError, match="no training image has a label"):
        make_split(Dataset(NAMES, unlabeled), DataSettings(), seed=0)
