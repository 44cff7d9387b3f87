"""Vectors of unit length."""

import numpy as np

__all__ = ["unit_features", "unit_rows"]


def unit_features(features: np.ndarray, mean: np.ndarray | None = None) -> np.ndarray:
    """Center features and scale them to unit length, as float32: (f - mean) / ‖f - mean‖.

    Parameters
    ----------
    features
        Features (n, d).
    mean
        What to subtract (d,); by default the mean of the features.

    Returns
    -------
    ndarray
        Unit vectors (n, d); a row that equals the mean is zero.
    """
    features = np.asarray(features, np.float32)
    return unit_rows(features - (features.mean(0) if mean is None else mean))


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to unit length; zero rows stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny))
