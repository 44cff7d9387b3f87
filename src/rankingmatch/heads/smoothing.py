"""Features of a folder, prepared once with the help of all its pictures, labeled or not.

A picture's feature moves toward those of its nearest neighbors, so that pictures of a class lie closer together and a
few labels suffice: with unit features x on the first principal components and the neighbors N(x) among the pictures,
x ← unit((1 − m) x + m mean(N(x))).
"""

from dataclasses import dataclass

import numpy as np

from rankingmatch.core.randomness import Purpose, numpy_generator

__all__ = ["Smoothing", "fit_smoothing", "smooth_features", "unit_features", "unit_rows"]

COMPONENTS = 256
NEIGHBORS = 10
MIX = 0.5
ANCHORS = 4000  # pictures among which neighbors are found; a random part of a larger folder
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
    """Which rows of features (n, d) are not zero, (n,) bool: those of pictures whose features are known."""
    return np.asarray(np.any(features != 0, axis=1))


@dataclass(frozen=True)
class Smoothing:
    """A map from features to smoothed features.

    Attributes
    ----------
    mean : numpy.ndarray
        The mean feature of the folder, of shape (d,).
    components : numpy.ndarray
        Its principal components, of shape (d, components).
    anchors : numpy.ndarray
        Unit features of the pictures among which neighbors are found, of shape (anchors, components).
    """

    mean: np.ndarray
    components: np.ndarray
    anchors: np.ndarray

    def apply(self, features: np.ndarray) -> np.ndarray:
        """Smooth features, of the folder's pictures or of others.

        Parameters
        ----------
        features : numpy.ndarray
            Features of shape (n, d).

        Returns
        -------
        numpy.ndarray
            Unit vectors of shape (n, components), float32; rows of zeros stay zero.
        """
        starts = range(0, len(features), ROWS)
        parts = [self._smooth(features[start : start + ROWS]) for start in starts]
        return np.concatenate(parts) if parts else np.empty((0, self.components.shape[1]), np.float32)

    def _smooth(self, features: np.ndarray) -> np.ndarray:
        """The smoothed features of a few rows."""
        own = unit_rows(unit_features(features, self.mean) @ self.components)
        count = min(NEIGHBORS, len(self.anchors))
        nearest = np.argpartition(-(own @ self.anchors.T), count - 1, axis=1)[:, :count]
        smoothed = unit_rows((1 - MIX) * own + MIX * self.anchors[nearest].mean(1))
        return np.where(known_rows(features)[:, None], smoothed, 0)


def fit_smoothing(features: np.ndarray, seed: int) -> Smoothing:
    """Find the principal components and the anchors of a folder.

    Parameters
    ----------
    features : numpy.ndarray
        Features of all pictures, of shape (n, d). Rows of zeros, whose features are not known yet, do not count; at
        least one row is known.
    seed : int
        The seed of the draw of anchors; it matters only for folders with more than 4000 pictures.

    Returns
    -------
    Smoothing
        The map to smoothed features.
    """
    rows = np.flatnonzero(known_rows(features))
    if len(rows) > ANCHORS:
        rows = np.sort(numpy_generator(seed, Purpose.ANCHORS).choice(rows, ANCHORS, replace=False))
    sampled = np.asarray(features[rows], np.float32)
    mean = sampled.mean(0)
    sampled = unit_features(sampled, mean)
    components = _principal_components(sampled)
    return Smoothing(mean, components, unit_rows(sampled @ components))


def smooth_features(features: np.ndarray, seed: int) -> np.ndarray:
    """Prepare the features of a folder, once, for everything else in this package.

    `next_images`, `fit_head` and `out_of_fold` take any features, but are more accurate and several
    times as fast with these.

    Parameters
    ----------
    features : numpy.ndarray
        Features of all pictures, of shape (n, d); rows of zeros, whose features are not known yet, stay zero.
    seed : int
        The seed; it matters only for folders with more than 4000 pictures.

    Returns
    -------
    numpy.ndarray
        Unit vectors of shape (n, min(256, d, n)), float32.
    """
    return fit_smoothing(features, seed).apply(features)


def _principal_components(features: np.ndarray) -> np.ndarray:
    """Directions of the largest second moment, (d, components), from whichever Gram matrix is smaller."""
    count, dimensions = features.shape
    keep = min(COMPONENTS, count, dimensions)
    if count < dimensions:
        _, vectors = np.linalg.eigh(features @ features.T)
        return unit_rows((features.T @ vectors[:, -keep:]).T).T
    _, vectors = np.linalg.eigh(features.T @ features)
    return np.asarray(vectors[:, -keep:])
