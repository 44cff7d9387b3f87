"""Features of a folder, prepared once with the help of all its images, labeled or not.

The feature of an image moves toward those of its nearest neighbors, so that images of a class lie closer together and a
few labels suffice: with unit features x on the first principal components and the neighbors N(x) among the images,
x ← unit((1 − m) x + m mean(N(x))).
"""

from dataclasses import dataclass

import numpy as np

from rankingmatch.core.randomness import Purpose, numpy_generator

COMPONENTS = 256
NEIGHBORS = 10
MIX = 0.5
ANCHORS = 4000  # images among which neighbors are found; a random part of a larger folder
ROWS = 1000  # at a time


def unit_features(features: np.ndarray, mean: np.ndarray | None = None) -> np.ndarray:
    """Centered features (n, d) of unit length, as float32: (f - mean) / ‖f - mean‖; zero where f is the mean.

    `mean` (d,) is by default that of the features.
    """
    features = np.asarray(features, np.float32)
    return unit_rows(features - (features.mean(0) if mean is None else mean))


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to unit length; zero rows stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny))


def known_rows(features: np.ndarray) -> np.ndarray:
    """Which rows of features (n, d) are not zero, (n,) bool: those of images whose features are known."""
    return np.asarray(np.any(features != 0, axis=1))


@dataclass(frozen=True)
class Smoothing:
    """A map from features to smoothed features."""

    mean: np.ndarray  # (d,), of the folder's features
    components: np.ndarray  # (d, components), its principal components
    anchors: np.ndarray  # (anchors, components), unit features of the images among which neighbors are found

    def apply(self, features: np.ndarray) -> np.ndarray:
        """Smoothed unit features (n, components), float32, of the folder's images or others; zero rows stay zero."""
        count = min(NEIGHBORS, len(self.anchors))
        parts = [np.empty((0, self.components.shape[1]), np.float32)]
        for start in range(0, len(features), ROWS):
            rows = features[start : start + ROWS]
            own = unit_rows(unit_features(rows, self.mean) @ self.components)
            nearest = np.argpartition(-(own @ self.anchors.T), count - 1, axis=1)[:, :count]
            smoothed = unit_rows((1 - MIX) * own + MIX * self.anchors[nearest].mean(1))
            parts.append(np.where(known_rows(rows)[:, None], smoothed, 0))
        return np.concatenate(parts)


def fit_smoothing(features: np.ndarray, seed: int) -> Smoothing:
    """Find the principal components and the anchors of a folder with features (n, d).

    Rows of zeros, whose features are not known yet, do not count; at least one row is known. The seed matters only for
    folders with more than 4000 images, whose anchors are drawn.
    """
    rows = np.flatnonzero(known_rows(features))
    if len(rows) > ANCHORS:
        rows = np.sort(numpy_generator(seed, Purpose.ANCHORS).choice(rows, ANCHORS, replace=False))
    sampled = np.asarray(features[rows], np.float32)
    mean = sampled.mean(0)
    sampled = unit_features(sampled, mean)
    # Directions of the largest second moment, (d, components), from whichever Gram matrix is smaller.
    count, dimensions = sampled.shape
    keep = min(COMPONENTS, count, dimensions)
    if count < dimensions:
        _, vectors = np.linalg.eigh(sampled @ sampled.T)
        components = unit_rows((sampled.T @ vectors[:, -keep:]).T).T
    else:
        _, vectors = np.linalg.eigh(sampled.T @ sampled)
        components = np.asarray(vectors[:, -keep:])
    return Smoothing(mean, components, unit_rows(sampled @ components))


def smooth_features(features: np.ndarray, seed: int) -> np.ndarray:
    """The smoothed features (n, min(256, d, n)) of a folder with features (n, d).

    What is trained on these is more accurate and several times as fast as on the features themselves.
    """
    return fit_smoothing(features, seed).apply(features)
