"""Which image next: coverage first, then coverage of what the model is unsure about."""

import numpy as np
import pytest

from rankingmatch.heads.smoothing import known_rows, smooth_features, unit_features
from rankingmatch.labeling import selection
from rankingmatch.labeling.selection import NOT_SELECTABLE, RARE, TYPICAL, UNLABELED, UNSURE, next_images


def blobs(each: int, classes: int = 5, dimensions: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features around a center for each class, and the classes."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(classes), each)
    centers = 4 * rng.standard_normal((classes, dimensions))
    return (centers[truth] + rng.standard_normal((len(truth), dimensions))).astype(np.float32), truth


def first_order(features: np.ndarray, count: int, seed: int = 0) -> list[int]:
    """The order without labels."""
    return [number for number, _ in next_images(features, np.full(len(features), UNLABELED), None, count, seed)]


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


def test_the_first_images_are_the_greedy_ones_and_show_every_cluster_and_no_image_twice() -> None:
    features, _ = blobs(each=8)
    assert first_order(features, 12) == naive_order(features, [], np.ones(40), 12)
    assert len({number % 40 for number in first_order(np.concatenate([features, features]), 40)}) == 40
    features, truth = blobs(each=50, classes=10)
    assert len(set(truth[first_order(features, 10)])) == 10


def test_later_choices_are_greedy_for_what_is_unsure_and_not_covered() -> None:
    features, truth = blobs(each=8, seed=1)
    labels = np.full(40, UNLABELED)
    labels[[0, 9, 30]] = truth[[0, 9, 30]]
    probabilities = np.random.default_rng(0).dirichlet(np.ones(5), 40)
    largest = np.sort(probabilities, axis=1)
    weights = (1 - largest[:, -1] + largest[:, -2]) ** selection.DOUBT
    numbers = [number for number, _ in next_images(features, labels, probabilities, 6, seed=0)]
    assert numbers == naive_order(features, [0, 9, 30], weights, 6)


def test_labeled_and_excluded_images_and_those_without_features_are_not_chosen() -> None:
    features, truth = blobs(each=4)
    labels = np.array([0, NOT_SELECTABLE, UNLABELED, UNLABELED] * 5)
    numbers = [number for number, _ in next_images(features, labels, None, 100, seed=0)]
    assert sorted(numbers) == np.flatnonzero(labels == UNLABELED).tolist()
    assert next_images(features, truth, None, 3, seed=0) == []
    features, _ = blobs(each=8)
    with_unknown = np.concatenate([features, np.zeros((200, 16), np.float32)])
    assert first_order(with_unknown, 240) == first_order(features, 40)
    smoothed = smooth_features(with_unknown, seed=0)
    assert known_rows(smoothed).tolist() == [True] * 40 + [False] * 200
    np.testing.assert_array_equal(smoothed[:40], smooth_features(features, seed=0))


def test_a_large_folder_is_sampled_deterministically_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "EXAMINED", 50)
    features, _ = blobs(each=100)
    orders = [first_order(features, 20, seed) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert len(set(orders[0])) == 20
    assert len(set(first_order(features, 300))) == 300


def test_reasons_say_what_is_rare_and_what_is_unsure() -> None:
    features, truth = blobs(each=10, classes=3)
    labels = np.full(30, UNLABELED)
    labeled = [*range(6), *range(10, 16), 20]
    labels[labeled] = truth[labeled]
    probabilities = np.eye(3)[truth] * 0.9 + 0.1 / 3
    probabilities[6] = [0.5, 0.5, 0]  # unsure between two classes with many labels
    reasons = dict(next_images(features, labels, probabilities, 17, seed=0))
    assert (reasons[6], reasons[21], reasons[16]) == (UNSURE, RARE, TYPICAL)
    assert {why for _, why in next_images(features, labels, None, 3, seed=0)} == {TYPICAL}
