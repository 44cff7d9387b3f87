"""Propagated labels against plain loops, and the head that is fitted to them."""

import numpy as np
import pytest

from rankingmatch.training import propagation
from rankingmatch.training.initial_head import fitted_head
from rankingmatch.training.propagation import neighbor_graph, propagated_labels


def clusters(count: int = 40, width: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features around three centers, and the cluster of each."""
    random = np.random.default_rng(seed)
    truth = np.arange(count) % 3
    centers = random.normal(size=(3, width)) * 4
    return (centers[truth] + random.normal(size=(count, width))).astype(np.float32), truth


def one_label_each(truth: np.ndarray) -> np.ndarray:
    """The label of the first image of each cluster; -1 for the others."""
    labels = np.full(len(truth), -1)
    for label in range(3):
        row = np.flatnonzero(truth == label)[0]
        labels[row] = label
    return labels


def predictions(features: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """The classes that a fitted head predicts, in plain loops."""
    head = fitted_head(features, labels, classes)
    result = []
    for row in features:
        direction = (row - head["center"]) / np.sqrt(((row - head["center"]) ** 2).sum())
        result.append(int(np.argmax([direction @ w + b for w, b in zip(head["weight"], head["bias"], strict=True)])))
    return np.array(result)


def naive_graph(features: np.ndarray, neighbors: int) -> np.ndarray:
    n = len(features)
    mean = features.mean(0)
    weights = np.zeros((n, n))
    for i in range(n):
        a = features[i] - mean
        cosines = []
        for j in range(n):
            b = features[j] - mean
            cosines.append(-9.0 if i == j else float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))))
        for j in sorted(range(n), key=lambda j: -cosines[j])[:neighbors]:
            weights[i, j] = max(weights[i, j], max(cosines[j], 0.0) ** 3)
            weights[j, i] = max(weights[j, i], max(cosines[j], 0.0) ** 3)
    result = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if weights[i, j]:
                result[i, j] = weights[i, j] / np.sqrt(weights[i].sum() * weights[j].sum())
    return result


def test_the_graph_is_that_of_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    features, _ = clusters()
    monkeypatch.setattr(propagation, "NEIGHBORS", 5)
    monkeypatch.setattr(propagation, "ROWS_AT_ONCE", 16)
    np.testing.assert_allclose(neighbor_graph(features).toarray(), naive_graph(features, 5), atol=1e-5)


def test_labels_spread_as_the_equation_says() -> None:
    features, truth = clusters()
    labels = one_label_each(truth)
    graph = neighbor_graph(features)
    dense, given = graph.toarray(), np.zeros((40, 3))
    for row, label in enumerate(labels):
        if label >= 0:
            given[row, label] = 1
    spread = given
    for _ in range(40):
        spread = np.array([[0.9 * dense[i] @ spread[:, c] + 0.1 * given[i, c] for c in range(3)] for i in range(40)])
    expected = spread / spread.sum(1, keepdims=True)
    np.testing.assert_allclose(propagated_labels(graph, labels, 3), expected, atol=1e-5)


def test_one_label_of_each_cluster_is_enough() -> None:
    features, truth = clusters(300)
    labels = one_label_each(truth)
    assert (propagated_labels(neighbor_graph(features), labels, 3).argmax(1) == truth).mean() > 0.98
    assert (predictions(features, labels, 3) == truth).mean() > 0.98


def test_two_classes_have_a_head_with_two_rows() -> None:
    features, truth = clusters(60)
    features, truth = features[truth < 2], truth[truth < 2]
    labels = np.where(np.arange(len(truth)) < 4, truth, -1)
    assert fitted_head(features, labels, 2)["weight"].shape == (2, 8)
    assert (predictions(features, labels, 2) == truth).mean() > 0.98


def test_without_unlabeled_images_the_head_is_fitted_to_the_labels() -> None:
    features, truth = clusters(60)
    assert (predictions(features, truth, 3) == truth).all()


def test_images_that_no_label_reaches_and_equal_images_are_no_problem() -> None:
    features = np.zeros((12, 4), np.float32)
    features[6:, 0] = 1
    labels = np.full(12, -1)
    labels[0], labels[1] = 0, 1
    assert all(np.isfinite(values).all() for values in fitted_head(features, labels, 2).values())
