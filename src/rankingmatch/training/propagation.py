"""Labels that are propagated from a few images to all others, along the nearest neighbors of their features."""

import numpy as np
from scipy.sparse import csr_array, diags_array

from rankingmatch.core.vectors import unit_features

__all__ = ["neighbor_graph", "propagated_labels"]

NEIGHBORS = 20
SHARE = 0.9  # α: how much of its label an image takes from its neighbors
ITERATIONS = 40
SHARPNESS = 3  # γ: similar neighbors count more
ROWS_AT_ONCE = 1024


def propagated_labels(graph: csr_array, labels: np.ndarray, classes: int) -> np.ndarray:
    """Spread labels over a graph (Zhou et al., 2004): Z ← α S Z + (1 − α) Y.

    Parameters
    ----------
    graph
        S, as `neighbor_graph` returns it (n, n).
    labels
        The class of each image (n,), or a negative number where it is not known.
    classes
        The number of classes.

    Returns
    -------
    ndarray
        The class probabilities of each image (n, classes); rows of zeros for images that no label reaches.
    """
    known = np.flatnonzero(labels >= 0)
    given = np.zeros((len(labels), classes), np.float32)
    given[known, labels[known]] = 1
    spread = given.copy()
    for _ in range(ITERATIONS):
        spread = SHARE * (graph @ spread) + (1 - SHARE) * given
    probabilities: np.ndarray = spread / spread.sum(1, keepdims=True).clip(min=1e-12)
    return probabilities


def neighbor_graph(features: np.ndarray) -> csr_array:
    """The similarities of nearest neighbors: S = D^(-1/2) W D^(-1/2).

    W has max(cos, 0)^γ of the centered features for each image and its nearest neighbors (Iscen et al., 2019), in both
    directions, and D has its row sums.

    Parameters
    ----------
    features
        Features (n, width).

    Returns
    -------
    csr_array
        A symmetric matrix (n, n).
    """
    count = len(features)
    neighbors = min(NEIGHBORS, count - 1)
    units = unit_features(features)
    nearest = np.empty((count, neighbors), np.int64)
    similarity = np.empty((count, neighbors), np.float32)
    for start in range(0, count, ROWS_AT_ONCE):
        cosines = units[start : start + ROWS_AT_ONCE] @ units.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -2  # an image is not its own neighbor
        found = np.argpartition(-cosines, neighbors - 1, axis=1)[:, :neighbors]
        nearest[start + rows] = found
        similarity[start + rows] = np.take_along_axis(cosines, found, 1).clip(min=0) ** SHARPNESS
    starts = np.arange(0, nearest.size + 1, neighbors)
    graph = csr_array((similarity.ravel(), nearest.ravel(), starts), shape=(count, count))
    graph = graph.maximum(graph.T)
    degree = diags_array(1 / np.sqrt(graph.sum(1).clip(min=1e-12)))
    return csr_array(degree @ graph @ degree, dtype=np.float32)
