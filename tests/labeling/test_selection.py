"""Which picture next: coverage first, then coverage of what the model is unsure about."""

import numpy as np
import pytest

from rankingmatch.heads.smoothing import known_rows, smooth_features, unit_features
from rankingmatch.labeling import selection
from rankingmatch.labeling.selection import (
    NOT_SELECTABLE,
    UNLABELED,
    Reason,
    audit_numbers,
    initial_order,
    is_audit_turn,
    next_pictures,
)


def blobs(each: int, classes: int = 5, dimensions: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features around a center for each class, and the classes."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(classes), each)
    centers = 4 * rng.standard_normal((classes, dimensions))
    return (centers[truth] + rng.standard_normal((len(truth), dimensions))).astype(np.float32), truth


def naive_order(features: np.ndarray, chosen: list[int], weights: np.ndarray, count: int) -> list[int]:
    """The greedy choice, with plain loops."""
    units = unit_features(features)
    kernel = np.exp(selection.SHARPNESS * (units @ units.T - 1))
    order: list[int] = []
    for _ in range(count):
        before = [max([float(kernel[x, y]) for x in chosen + order], default=0.0) for y in range(len(features))]
        gains = {}
        for x in set(range(len(features))) - set(chosen) - set(order):
            gains[x] = sum(weights[y] * max(kernel[x, y] - before[y], 0) for y in range(len(features)))
        order.append(max(gains, key=lambda x: gains[x]))
    return order


def test_the_initial_order_is_the_greedy_one() -> None:
    features, _ = blobs(each=8)
    assert initial_order(features, 12, seed=0).tolist() == naive_order(features, [], np.ones(40), 12)


def test_later_choices_are_greedy_for_what_is_unsure_and_not_covered() -> None:
    features, truth = blobs(each=8, seed=1)
    labels = np.full(40, UNLABELED)
    labels[[0, 9, 30]] = truth[[0, 9, 30]]
    probabilities = np.random.default_rng(0).dirichlet(np.ones(5), 40)
    largest = np.sort(probabilities, axis=1)
    weights = (1 - largest[:, -1] + largest[:, -2]) ** selection.DOUBT
    numbers = [choice.number for choice in next_pictures(features, labels, probabilities, 6, seed=0)]
    assert numbers == naive_order(features, [0, 9, 30], weights, 6)


def test_the_first_pictures_show_every_cluster() -> None:
    features, truth = blobs(each=50, classes=10)
    assert len(set(truth[initial_order(features, 10, seed=0)])) == 10


def test_labeled_and_excluded_pictures_are_not_chosen_again() -> None:
    features, truth = blobs(each=4)
    labels = np.array([0, NOT_SELECTABLE, UNLABELED, UNLABELED] * 5)
    numbers = [choice.number for choice in next_pictures(features, labels, None, 100, seed=0)]
    assert sorted(numbers) == np.flatnonzero(labels == UNLABELED).tolist()
    assert next_pictures(features, truth, None, 3, seed=0) == []


def test_pictures_without_features_are_neither_chosen_nor_covered() -> None:
    features, _ = blobs(each=8)
    with_unknown = np.concatenate([features, np.zeros((200, 16), np.float32)])
    assert initial_order(with_unknown, 240, seed=0).tolist() == initial_order(features, 40, seed=0).tolist()
    smoothed = smooth_features(with_unknown, seed=0)
    assert known_rows(smoothed).tolist() == [True] * 40 + [False] * 200
    np.testing.assert_array_equal(smoothed[:40], smooth_features(features, seed=0))


def test_identical_pictures_are_shown_once_before_all_others() -> None:
    features, _ = blobs(each=8)
    twice = np.concatenate([features, features])
    assert len(set(initial_order(twice, 40, seed=0) % 40)) == 40


def test_a_large_folder_is_sampled_deterministically_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "EXAMINED", 50)
    features, _ = blobs(each=100)
    orders = [initial_order(features, 20, seed).tolist() for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert len(set(orders[0])) == 20
    assert len(set(initial_order(features, 300, seed=0))) == 300


def test_reasons_say_what_is_rare_and_what_is_unsure() -> None:
    features, truth = blobs(each=10, classes=3)
    labels = np.full(30, UNLABELED)
    labels[[0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 20]] = truth[[0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 20]]
    probabilities = np.eye(3)[truth] * 0.9 + 0.1 / 3
    probabilities[6] = [0.5, 0.5, 0]  # unsure between two classes with many labels
    reasons = {c.number: c.reason for c in next_pictures(features, labels, probabilities, 17, seed=0)}
    assert reasons[6] is Reason.UNSURE
    assert reasons[21] is Reason.RARE
    assert reasons[16] is Reason.TYPICAL
    assert {c.reason for c in next_pictures(features, labels, None, 3, seed=0)} == {Reason.TYPICAL}


def test_the_audit_is_a_uniform_sample_of_the_folder() -> None:
    drawn = np.array([audit_numbers(50, seed) for seed in range(400)])
    assert drawn.shape == (400, 10)
    assert all(len(set(row)) == 10 for row in drawn)
    counts = np.bincount(drawn.ravel(), minlength=50)  # each is 80 on average, with a deviation of 8
    assert counts.min() > 80 - 4.5 * 8
    assert counts.max() < 80 + 4.5 * 8
    assert audit_numbers(50, 3).tolist() == audit_numbers(50, 3).tolist()
    assert len(audit_numbers(1_000_000, 0)) == selection.AUDIT_MOST


def test_every_fifth_picture_is_for_the_audit() -> None:
    assert [k for k in range(12) if is_audit_turn(k)] == [4, 9]
