"""Labels are hidden evenly, or with the long tail of the literature, by the seed; impossible settings are errors."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rankingmatch.core.errors import DataError
from rankingmatch.data import UNLABELED, Dataset, DataSettings, Images, Split, make_split, rows_to_json
from rankingmatch.data.split import hide_labels, long_tail, long_tailed_labels

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
    given = replace(dataset(), validation=split.validation)  # is kept
    again = make_split(given, DataSettings(validation=20), seed=0)
    assert (again.validation is split.validation, len(again.labeled_rows)) == (True, 60)


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


# --- long tails ----------------------------------------------------------------------------------------------

TEN = tuple("abcdefghij")


def ten(each: int = 60, classes: tuple[str, ...] = TEN, unknown: int = 0) -> Dataset:
    labels = np.concatenate([np.arange(each * len(classes)) % len(classes), np.full(unknown, UNLABELED)])
    return Dataset(classes, Images(np.zeros((len(labels), 2, 2, 1), np.uint8), labels))


def counts(labels: np.ndarray) -> list[int]:
    sizes: list[int] = np.bincount(labels[labels != UNLABELED], minlength=10).tolist()
    return sizes


def split_counts(split: Split) -> tuple[list[int], list[int]]:
    return counts(split.truth[split.labeled_rows]), counts(split.truth[split.unlabeled_rows])


def literature(largest: int, classes: int, ratio: float) -> list[int]:
    """The sizes of long-tailed CIFAR-10, as papers list them: whole numbers, rounded down."""
    sizes = []
    for k in range(1, classes + 1):
        exact = largest * ratio ** (-(k - 1) / (classes - 1))
        sizes.append(int(round(exact, 6)))
    return sizes


def test_sizes_decay_exponentially_from_the_first_class_to_the_last() -> None:
    assert long_tail(3, 100).tolist() == pytest.approx([1, 0.1, 0.01])
    assert long_tail(3, 0.01).tolist() == pytest.approx([0.01, 0.1, 1])
    assert long_tail(1, 100).tolist() == [1]
    assert long_tail(4, 1).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(("largest", "ratio"), [(1500, 100), (1500, 50), (500, 100), (1000, 150), (150, 10), (450, 20)])
def test_the_total_of_a_split_in_the_literature_gives_its_sizes(largest: int, ratio: float) -> None:
    expected = literature(largest, 10, ratio)
    if (largest, ratio) == (1500, 100):
        assert expected == [1500, 899, 539, 323, 193, 116, 69, 41, 25, 15]
    kept = long_tailed_labels(ten(1500).train.labels, sum(expected), ratio, TEN, np.random.default_rng(0))
    assert counts(kept) == expected


def test_exactly_the_given_number_of_labels_is_kept() -> None:
    for count in range(98, 130):
        kept = counts(long_tailed_labels(ten().train.labels, count, 20, TEN, np.random.default_rng(0)))
        assert (sum(kept), kept[-1] >= 1) == (count, True)
        assert kept == sorted(kept, reverse=True)


@pytest.mark.parametrize(
    ("labels", "imbalance", "unlabeled_imbalance", "ratio"),
    [(98, 20, None, 20), (98, 20, 1, 1), (98, 20, 0.05, 0.05), (40, None, 8, 8)],
)
def test_unlabeled_images_have_the_tail_of_the_labels_unless_told_otherwise(
    labels: int, imbalance: float | None, unlabeled_imbalance: float | None, ratio: float
) -> None:
    settings = DataSettings(labels=labels, imbalance=imbalance, unlabeled_imbalance=unlabeled_imbalance)
    labeled, unlabeled = split_counts(make_split(ten(), settings, seed=0))
    assert sum(labeled) == labels
    reverse = literature(60 - labeled[-1], 10, 1 / ratio)[::-1]
    assert unlabeled == (reverse if ratio < 1 else literature(60 - labeled[0], 10, ratio))


def test_without_a_number_of_labels_the_tail_has_as_many_as_there_can_be() -> None:
    split = make_split(ten(unknown=7), DataSettings(imbalance=20), seed=0)
    assert split_counts(split)[0] == literature(60, 10, 20)
    assert (split.truth[split.unlabeled_rows] == UNLABELED).all()
    assert len(split.unlabeled_rows) == 7
    fewer = make_split(ten(unknown=7), DataSettings(labels=98, imbalance=20), seed=0)
    assert (fewer.truth[fewer.unlabeled_rows] == UNLABELED).sum() == 7


def test_the_seed_decides_which_images_are_in_the_tail() -> None:
    settings = DataSettings(labels=98, imbalance=20, validation=30)
    first, again, other = (make_split(ten(), settings, seed) for seed in (0, 0, 1))
    for rows in ("labeled_rows", "unlabeled_rows", "validation_rows"):
        assert (getattr(first, rows) == getattr(again, rows)).all()
    assert (first.labels != other.labels).any()
    assert not set(first.labeled_rows) & set(first.unlabeled_rows)
    assert not set(first.validation_rows) & {*first.labeled_rows, *first.unlabeled_rows}
    without_tail = make_split(ten(), DataSettings(labels=98, validation=30), seed=0)
    assert (first.validation_rows == without_tail.validation_rows).all()


@pytest.mark.parametrize("include_labeled", [False, True])
@pytest.mark.parametrize("imbalance", [20, None])
def test_a_saved_split_comes_back_whatever_the_seed(
    imbalance: float | None, include_labeled: bool, tmp_path: Path
) -> None:
    settings = DataSettings(labels=98, imbalance=imbalance, validation=30, include_labeled=include_labeled)
    first = make_split(ten(), settings, seed=0)
    assert set(first.labeled_rows) & set(first.unlabeled_rows) == (
        set(first.labeled_rows) if include_labeled else set()
    )
    rows = rows_to_json(first)
    assert ("unlabeled" in rows) == (imbalance is not None)  # else all others are unlabeled
    path = tmp_path / "split.json"
    path.write_text(json.dumps({"format": 1, **rows}))
    again = make_split(ten(), DataSettings(split=str(path), include_labeled=include_labeled), seed=5)
    for name in ("labels", "labeled_rows", "unlabeled_rows", "validation_rows"):
        assert (getattr(first, name) == getattr(again, name)).all()


NO_LABELS, FEW = (
    Dataset(("a", "b"), Images(np.zeros((6, 2, 2, 1), np.uint8), np.array(labels)))
    for labels in ([UNLABELED] * 6, [0, 1] + [UNLABELED] * 4)
)


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (dataset((5, 5, 0)), DataSettings(labels=6), "class 'owl'"),
        (NO_LABELS, DataSettings(), "no training image has a label"),
        (FEW, DataSettings(unlabeled_imbalance=2), "the true class of no unlabeled image is known"),
        (ten(), DataSettings(labels=601), "labels is 601, more than the 600"),
        (ten(), DataSettings(labels=2), "labels is 2, fewer than the 10"),
        (ten(), DataSettings(validation=600), "validation is 600"),
        (ten(), DataSettings(labels=40, imbalance=100), r"too few for imbalance 100: the class 'j' .* 242"),
        (ten(), DataSettings(labels=40, imbalance=0.01), r"too few for imbalance 0.01: the class 'a' would have none"),
        (ten(), DataSettings(labels=300, imbalance=20), r"needs \d+ labeled images of the class 'a', but it has 60"),
        (ten(), DataSettings(imbalance=100), r"imbalance is 100, .* 60 labeled images of the class 'a': the class 'j'"),
        (ten(), DataSettings(labels=98, imbalance=20, unlabeled_imbalance=100), r"unlabeled images of the class 'a'"),
    ],
)
def test_impossible_settings_are_errors_that_name_the_value_or_the_class(
    data: Dataset, settings: DataSettings, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        make_split(data, settings, seed=0)


def test_the_number_of_labels_that_an_error_asks_for_is_the_smallest_that_works() -> None:
    with pytest.raises(DataError) as caught:
        make_split(ten(200), DataSettings(labels=40, imbalance=30), seed=0)
    least = int(str(caught.value).partition("at least ")[2].partition(",")[0])
    make_split(ten(200), DataSettings(labels=least, imbalance=30), seed=0)
    with pytest.raises(DataError, match="would have none"):
        make_split(ten(200), DataSettings(labels=least - 10, imbalance=30), seed=0)
