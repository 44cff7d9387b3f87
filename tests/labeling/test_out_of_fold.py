"""Predictions for labeled pictures by heads that have not seen their labels."""

import numpy as np
from feature_clusters import clusters

from rankingmatch.labeling.model import out_of_fold


def test_out_of_fold_predictions_do_not_see_the_label() -> None:
    features, truth = clusters()
    labels = np.where(np.arange(len(truth)) < 60, truth, -1)
    wrong = labels.copy()
    wrong[7] = (truth[7] + 1) % 4
    held_out = out_of_fold(features, wrong, 4, seed=0)
    assert held_out.shape == (60, 4)
    assert held_out[7].argmax() == truth[7]
    assert (held_out.argmax(1) == truth[:60]).mean() > 0.9
    np.testing.assert_allclose(held_out.sum(1), 1, atol=1e-5)


def test_out_of_fold_predictions_of_single_labels_are_defined() -> None:
    features, _ = clusters()
    labels = np.full(len(features), -1)
    labels[3] = 1
    assert out_of_fold(features, labels, 2, seed=0).tolist() == [[0.5, 0.5]]
